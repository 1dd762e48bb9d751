/**
 * A checkpoint in which one volume is whole: of a guest that runs the filesystem is frozen for as long as the cut takes,
 * of one that does not the volume is taken as it lies. Whatever goes wrong, the guest is thawed.
 */
import { Effect, Exit, Schedule, Schema } from "effect"
import type { AppId, VolumeId } from "../document/schema.ts"
import type { GuestSession } from "../services/Guest.ts"
import type { Checkpoint, Checkpoints } from "../services/VolumeBackend.ts"
import type { HostContext } from "./host-context.ts"
import type { VolumeUse } from "./volume-users.ts"

/**
 * How long a guest holds its volume frozen should this daemon die, of its own time and from when it is asked: what it has
 * to write before is written within this time too, which on a volume that is far away has taken half a minute.
 */
const leaseMs = 60_000
/** A cut that takes longer is given up before the lease is over. */
const cutLimitMs = 50_000

/** Who writes to the volume is just changing: no failure, only too early. */
export class VolumeBusy extends Schema.TaggedError<VolumeBusy>()("VolumeBusy", { reason: Schema.String }) {
  override get message() {
    return `waiting: ${this.reason}`
  }
}

/** The cut may have caught the volume in the middle of a write. */
export class NotHeld extends Schema.TaggedError<NotHeld>()("NotHeld", {
  volumeId: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `volume ${this.volumeId} could not be kept still while it was cut: ${this.reason}`
  }
}

export interface CutOptions {
  readonly appId: AppId
  readonly volumeId: VolumeId
  readonly checkpoints: Checkpoints
  /** Of the checkpoint. A stale one of that name is deleted before anything is frozen. */
  readonly name: string
  readonly use: Exclude<VolumeUse, { readonly kind: "changing" }>
}

/** A lost answer is asked for again; what cannot be thawed by the host thaws by itself when the lease is over. */
const thaw = (guest: GuestSession) => guest.thawVolume.pipe(Effect.retry(Schedule.recurs(2)))

/** The checkpoint may be there after a failure too: whoever asks deletes it. */
export const cutVolume = (host: HostContext, options: CutOptions) =>
  Effect.gen(function* () {
    const { appId, volumeId, checkpoints, name, use } = options
    const { volumes, metrics } = host
    const create: Effect.Effect<Checkpoint, { readonly message: string }> = volumes
      .flush(volumeId)
      .pipe(Effect.andThen(metrics.storage("checkpoint_create", checkpoints.create(name))))
    yield* checkpoints.delete(name)
    // What can be written before the freeze need not be waited for during it.
    yield* volumes.flush(volumeId)

    if (use.kind === "at-rest") {
      const cut = yield* create
      const now = host.volumeUsers.of(appId, volumeId)
      if (now.kind !== "at-rest" || now.since !== use.since)
        return yield* new VolumeBusy({ reason: "its app came up while its volume was cut" })
      return cut
    }

    return yield* Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const cut = yield* use.guest.freezeVolume(leaseMs).pipe(
          Effect.andThen(create),
          Effect.timeoutOrElse({
            duration: cutLimitMs,
            orElse: () =>
              Effect.fail(
                new NotHeld({ volumeId, reason: `the cut took longer than ${cutLimitMs / 1000} s` })
              )
          }),
          restore,
          Effect.exit
        )
        const thawed = yield* Effect.result(thaw(use.guest))
        if (Exit.isFailure(cut)) return yield* cut
        if (thawed._tag === "Failure") return yield* new NotHeld({ volumeId, reason: thawed.failure.message })
        if (thawed.success === "lapsed")
          return yield* new NotHeld({ volumeId, reason: "its guest let go of it too early" })
        return cut.value
      })
    )
  })
