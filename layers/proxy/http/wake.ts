/** What waits for one sleeping app, and the run of its wake. Outside Effect: this is the data path. */
import type { AsleepTarget, UnavailableTarget } from "../../../src/services/Proxy.ts"
import type { App, Held } from "./app.ts"
import type { OnDefect } from "./wire.ts"

/** Runs the wake of the app, and tells `Routes.woken` of its end. */
export type RunWake = (app: App, wake: Wake) => void

export class Wake {
  readonly effect: AsleepTarget["wake"]
  readonly held: Set<Held>
  running = false
  readonly #onDefect: OnDefect

  /** `held`: what has waited for the same app under another target. */
  constructor(effect: AsleepTarget["wake"], held: Set<Held>, onDefect: OnDefect) {
    this.effect = effect
    this.held = held
    this.#onDefect = onDefect
  }

  releaseUp(): void {
    this.#release((held) => held.wokenUp())
  }

  releaseUnavailable(target: UnavailableTarget): void {
    this.#release((held) => held.notWoken(target))
  }

  /** Each one whatever becomes of the others, in the order in which they came. */
  #release(tell: (held: Held) => void): void {
    const released = [...this.held]
    this.held.clear()
    for (const held of released) {
      try {
        tell(held)
      } catch (error) {
        this.#onDefect(error)
      }
    }
  }
}
