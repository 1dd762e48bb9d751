/** Who may write to an app's volume at this moment: asked by whoever cuts it. */
import { Deferred, Effect, type Scope } from "effect"
import type { AppId, VolumeId } from "../document/schema.ts"
import type { GuestSession } from "../services/Guest.ts"
import type { AppModel } from "./model.ts"

export type VolumeUse =
  /** Nobody does. What was seen before is seen again as long as nobody has in between: `since` is the same then. */
  | { readonly kind: "at-rest"; readonly since: string }
  /** A guest does, which can be asked to stand still. */
  | { readonly kind: "guest"; readonly guest: GuestSession }
  /** It is about to change who does, or nobody knows yet: a clause that says what goes on. */
  | { readonly kind: "changing"; readonly reason: string }

const changing = (reason: string): VolumeUse => ({ kind: "changing", reason })

export const volumeUse = (
  { attachment, record, progress, step, rises }: AppModel,
  volumeId: VolumeId
): VolumeUse => {
  if (step?.kind === "provision-volume" && step.volume.volumeId === volumeId)
    return changing("it is being made or grown")
  if (step?.kind === "delete-volume" && step.volumeId === volumeId) return changing("it is being deleted")
  if (attachment !== undefined) {
    if (step?.kind === "stop") return changing("its app is stopping")
    if (step?.kind === "sleep") return changing("its app is falling asleep")
    return attachment.guest === undefined || Deferred.isDoneUnsafe(attachment.machine.exit)
      ? changing("its guest has not answered this daemon yet")
      : { kind: "guest", guest: attachment.guest }
  }
  if (record?.machine !== undefined || progress?.kind === "booting") return changing("its app is coming up")
  return { kind: "at-rest", since: `${rises} ${record?.startedAt ?? ""} ${record?.asleep?.at ?? ""}` }
}

type Look = (volumeId: VolumeId) => VolumeUse

export class VolumeUsers {
  readonly #looks = new Map<AppId, Look>()

  /** For as long as the scope lasts it is this that tells of the app's volumes. */
  register(appId: AppId, look: Look): Effect.Effect<void, never, Scope.Scope> {
    return Effect.asVoid(
      Effect.acquireRelease(
        Effect.sync(() => this.#looks.set(appId, look)),
        () => Effect.sync(() => this.#looks.get(appId) === look && this.#looks.delete(appId))
      )
    )
  }

  of(appId: AppId, volumeId: VolumeId): VolumeUse {
    return this.#looks.get(appId)?.(volumeId) ?? changing("its app has not been looked at yet")
  }
}
