/** What the steps of one app work with. */
import { Clock, Deferred, Effect, Schema, Scope, Semaphore } from "effect"
import { FetchProgress } from "../services/ArtifactStore.ts"
import type { AppRecord, HostStateError } from "../services/HostState.ts"
import type { Health } from "./health.ts"
import type { HostContext } from "./host-context.ts"
import type { AppMessage, AppModel, Attachment, StartProgress } from "./model.ts"

/** A step needs the app's record, and there is none: the planner claims a slot first. */
export class NoRecord extends Schema.TaggedError<NoRecord>()("NoRecord", { appId: Schema.String }) {
  override get message() {
    return `app ${this.appId} has no slot`
  }
}

export interface AppParts {
  readonly host: HostContext
  readonly model: AppModel
  /** The app's own scope: attachments live below it. */
  readonly scope: Scope.Scope
  readonly post: (message: AppMessage) => Effect.Effect<void>
  /** Run when a step has come further. */
  readonly publish: Effect.Effect<void>
}

export class App {
  readonly host: HostContext
  readonly model: AppModel
  readonly scope: Scope.Scope
  readonly post: AppParts["post"]
  readonly #publish: Effect.Effect<void>
  readonly #writing = Semaphore.makeUnsafe(1)

  constructor({ host, model, scope, post, publish }: AppParts) {
    this.host = host
    this.model = model
    this.scope = scope
    this.post = post
    this.#publish = publish
  }

  /** Changes the app's record in memory and on disk, in this order of calls. */
  amend(change: (record: AppRecord) => AppRecord): Effect.Effect<void, HostStateError | NoRecord> {
    const { host, model } = this
    return this.#writing.withPermits(1)(
      Effect.suspend((): Effect.Effect<void, HostStateError | NoRecord> => {
        if (model.record === undefined) return Effect.fail(new NoRecord({ appId: model.appId }))
        const record = change(model.record)
        model.record = record
        return host.state.saveApp(record).pipe(
          Effect.tap(() =>
            Effect.sync(() => {
              model.notesFailure = undefined
            })
          ),
          Effect.tapError((error) =>
            Effect.sync(() => {
              model.notesFailure = error.message
            })
          )
        )
      })
    )
  }

  /** Says how far a step has come. */
  progress(progress: StartProgress): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.model.progress = progress
      return this.#publish
    })
  }

  /**
   * The app is up.
   *
   * @param startedAt of the microVM, or of its last wake: ms since 1970
   */
  attach(attachment: Attachment, health: Health, startedAt: number): Effect.Effect<void> {
    const { host, model, post } = this
    const { appId } = model
    return Effect.gen(function* () {
      const now = yield* Clock.currentTimeMillis
      host.activity.watch(appId, startedAt, now, {
        instance: () => model.desired.instance,
        isDue: (reason) => post({ kind: "sleep-due", reason, answer: undefined })
      })
      yield* Scope.addFinalizer(
        attachment.scope,
        Effect.sync(() => host.activity.unwatch(appId))
      )
      model.attachment = attachment
      model.health = health
      model.sleepFailure = undefined
      // What was due was the microVM before.
      if (model.sleepDue?.answer !== undefined)
        yield* Deferred.succeed(model.sleepDue.answer, `${appId} was replaced meanwhile`)
      model.sleepDue = undefined
      model.wakeFailure = undefined
    })
  }
}

/** Says how far the fetches come that an effect leads to. */
export const withFetchProgress = <A, E, R>(
  app: App,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.provideService(effect, FetchProgress, (fetching) => app.progress({ kind: "fetching", fetching }))
