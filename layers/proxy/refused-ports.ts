/** The ports of apps that cannot be listened on now, each with its sentence. */
import { Effect, SubscriptionRef } from "effect"
import type { AppId } from "../../src/document/schema.ts"

/** What each app's ports that are refused have to say. */
export type RefusedSentences = ReadonlyMap<AppId, ReadonlyArray<string>>

/** Not safe for concurrent use: the layer lets one call in at a time, and publishes after each. */
export class RefusedPorts {
  readonly sentences: SubscriptionRef.SubscriptionRef<RefusedSentences>
  readonly #byApp = new Map<AppId, Map<string, string>>()
  #changed = false

  constructor(sentences: SubscriptionRef.SubscriptionRef<RefusedSentences>) {
    this.sentences = sentences
  }

  /**
   * Notes what became of an attempt to listen, which fails with its reason.
   *
   * @param port tells it from the app's other ports; @param name what it is to the operator
   */
  seen<A>(appId: AppId, port: string, name: string, attempt: Effect.Effect<A, string>) {
    return attempt.pipe(
      Effect.tap(() => Effect.sync(() => this.forget(appId, port))),
      Effect.tapError((reason) => Effect.sync(() => this.#put(appId, port, `${name}: ${reason}`)))
    )
  }

  /** It is listened on now, or no more to be. */
  forget(appId: AppId, port: string): void {
    const ports = this.#byApp.get(appId)
    if (ports?.delete(port) !== true) return
    this.#changed = true
    if (ports.size === 0) this.#byApp.delete(appId)
  }

  /** Tells of what has changed. */
  readonly publish: Effect.Effect<void> = Effect.suspend(() => {
    if (!this.#changed) return Effect.void
    this.#changed = false
    return SubscriptionRef.set(
      this.sentences,
      new Map(Array.from(this.#byApp, ([appId, ports]) => [appId, [...ports.values()]]))
    )
  })

  #put(appId: AppId, port: string, sentence: string): void {
    const ports = this.#byApp.get(appId) ?? new Map<string, string>()
    if (ports.get(port) === sentence) return
    this.#changed = true
    this.#byApp.set(appId, ports.set(port, sentence))
  }
}
