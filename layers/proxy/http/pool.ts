/** The connections to one target of one app. Outside Effect: this is the data path. */
import type { Link } from "./app.ts"
import { MAX_IDLE_UPSTREAMS, type Timeouts } from "./limits.ts"
import type { Sweep } from "./sweep.ts"
import { Upstream } from "./upstream.ts"
import type { OnDefect } from "./wire.ts"

/** What every pool of a proxy shares. */
export interface PoolContext {
  readonly sweep: Sweep
  readonly timeouts: Timeouts
  readonly onDefect: OnDefect
}

export class Pool {
  readonly host: string
  readonly port: number
  readonly context: PoolContext
  /** Every connection to the app, of this pool and others. */
  readonly links: Set<Link>
  /** The app has another target now: no connection is taken from here any more, and none comes back. */
  retired = false
  /** The app has closed a connection at once, without having said so: it may close any at this moment. */
  #hangsUp = false
  /** Unused connections, the one used last at the end. */
  readonly #idle: Array<Upstream> = []

  constructor(host: string, port: number, context: PoolContext, links: Set<Link>) {
    this.host = host
    this.port = port
    this.context = context
    this.links = links
  }

  /**
   * A connection that was used before, or undefined. `once`: the request must not be sent twice, so that only a
   * connection will do that the app has no reason yet to close.
   */
  takeIdle(once: boolean): Upstream | undefined {
    for (;;) {
      const upstream = this.#idle.at(-1)
      if (upstream === undefined) return undefined
      if (once && (this.#hangsUp || !this.#isFresh(upstream))) return undefined
      this.#idle.pop()
      if (upstream.isUsable) return upstream
      upstream.destroy()
    }
  }

  connect(): Upstream {
    return new Upstream(this)
  }

  /** Takes a connection back whose answer is complete. */
  giveBack(upstream: Upstream): void {
    if (this.retired || !upstream.isUsable || this.#idle.length >= MAX_IDLE_UPSTREAMS) upstream.destroy()
    else this.#idle.push(upstream)
  }

  /** The app has closed a connection that was unused, or on which it was asked something meanwhile. */
  hungUp(upstream: Upstream): void {
    if (this.#isFresh(upstream)) this.#hangsUp = true
  }

  /** An idle connection has closed. */
  drop(upstream: Upstream): void {
    const at = this.#idle.lastIndexOf(upstream)
    if (at !== -1) this.#idle.splice(at, 1)
  }

  #isFresh({ idleSince }: Upstream): boolean {
    const { sweep, timeouts } = this.context
    return sweep.tick - idleSince <= sweep.ticks(timeouts.upstreamFresh)
  }

  /** Closes the idle connections now; busy ones close when their answer is complete. */
  retire(): void {
    this.retired = true
    for (const upstream of this.#idle.splice(0)) upstream.destroy()
  }
}
