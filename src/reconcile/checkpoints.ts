/** The checkpoints that the document names: cut once, kept until it says `absent`. */
import { Clock, Effect } from "effect"
import type {
  CheckpointId,
  DesiredCheckpoint,
  DesiredVolume,
  HostDesiredState,
  VolumeId
} from "../document/schema.ts"
import type { CheckpointReport } from "../report/schema.ts"
import type { CheckpointRecord } from "../services/HostState.ts"
import { type Checkpoint, type Checkpoints, NO_CHECKPOINTS } from "../services/VolumeBackend.ts"
import type { HostContext } from "./host-context.ts"
import { makeNamedWork } from "./named-work.ts"
import { isOwnName, OWN_NAME_REFUSED } from "./own-checkpoints.ts"
import { retryDelayMs, triedAgain } from "./retry-delay.ts"

/** What the document asks of one checkpoint. */
export interface AskedCheckpoint {
  readonly wanted: DesiredCheckpoint
  /** The volume as the document has it. */
  readonly volume: Pick<DesiredVolume, "appId" | "desiredState"> | undefined
}

export interface CheckpointStatus {
  readonly checkpointId: CheckpointId
  readonly volumeId: VolumeId
  readonly state: CheckpointReport["state"]
  readonly reference: string | undefined
  /** ms since 1970. */
  readonly readyAt: number | undefined
  readonly message: string | undefined
}

/** What is asked of all checkpoints by a document. Pure. */
export const askedCheckpoints = (
  document: HostDesiredState | undefined
): ReadonlyMap<CheckpointId, AskedCheckpoint> => {
  const volumes = new Map(document?.volumes.map((volume) => [volume.volumeId, volume]))
  return new Map(
    document?.checkpoints.map((wanted) => {
      const volume = volumes.get(wanted.volumeId)
      return [
        wanted.checkpointId,
        { wanted, volume: volume && { appId: volume.appId, desiredState: volume.desiredState } }
      ]
    })
  )
}

/** Whether a volume is to be cut now, or why it is not. Pure. */
export const planCut = (
  volumeId: VolumeId,
  volume: AskedCheckpoint["volume"],
  volumeExists: boolean
):
  | { readonly kind: "cut" }
  | { readonly kind: "wait"; readonly reason: string }
  | { readonly kind: "refuse"; readonly reason: string } => {
  if (volume === undefined) return { kind: "refuse", reason: `the document names no volume ${volumeId}` }
  if (volume.desiredState === "absent")
    return { kind: "refuse", reason: `volume ${volumeId} is marked absent` }
  return volumeExists ? { kind: "cut" } : { kind: "wait", reason: `waiting for volume ${volumeId}` }
}

/** Whether a volume is there to be cut. */
export const volumeIsThere = (
  host: HostContext,
  volume: AskedCheckpoint["volume"],
  volumeId: VolumeId
): boolean =>
  volume !== undefined &&
  host.statuses.get(volume.appId)?.volumes.some((one) => one.volumeId === volumeId && one.exists) === true

const lookAgainMs = 1_000

const plainly = (
  { checkpointId, volumeId }: DesiredCheckpoint,
  state: CheckpointStatus["state"],
  message?: string
): CheckpointStatus => ({ checkpointId, volumeId, state, reference: undefined, readyAt: undefined, message })

/** The fibers of all checkpoints. */
export const makeCheckpoints = Effect.fnUntraced(function* (
  host: HostContext,
  onChange: Effect.Effect<void>
) {
  const { state, volumes, metrics } = host
  const { checkpoints } = volumes
  const records = new Map((yield* state.checkpoints).map((record) => [record.checkpointId, record]))

  const save = Effect.fnUntraced(function* (record: CheckpointRecord) {
    yield* state.saveCheckpoint(record)
    records.set(record.checkpointId, record)
  })

  const found = (all: ReadonlyArray<Checkpoint>, id: CheckpointId) => all.find(({ name }) => name === id)

  const noteReady = (wanted: DesiredCheckpoint, { reference, createdAt }: Checkpoint) =>
    save({
      checkpointId: wanted.checkpointId,
      volumeId: wanted.volumeId,
      state: "ready",
      reference,
      readyAt: createdAt
    })

  const readyStatus = (record: CheckpointRecord): CheckpointStatus => ({
    checkpointId: record.checkpointId,
    volumeId: record.volumeId,
    state: "ready",
    reference: record.reference,
    readyAt: record.readyAt,
    message: undefined
  })

  type Publish = (status: CheckpointStatus | undefined) => Effect.Effect<void>

  /** One try; false when there is nothing to do but wait. */
  const cut = Effect.fnUntraced(function* (backend: Checkpoints, asked: AskedCheckpoint, publish: Publish) {
    const { wanted } = asked
    const { checkpointId, volumeId } = wanted
    // One that is there was made for this, by a daemon that died or on this store before.
    const there = found(yield* backend.list, checkpointId)
    if (there !== undefined) {
      yield* noteReady(wanted, there)
      return true
    }
    const plan = planCut(volumeId, asked.volume, volumeIsThere(host, asked.volume, volumeId))
    if (plan.kind !== "cut") {
      yield* publish(plainly(wanted, plan.kind === "wait" ? "pending" : "failed", plan.reason))
      return plan.kind === "refuse" ? yield* Effect.never : false
    }
    yield* save({ checkpointId, volumeId, state: "creating" })
    yield* volumes.flush(volumeId)
    yield* noteReady(wanted, yield* metrics.storage("checkpoint_create", backend.create(checkpointId)))
    yield* Effect.logInfo(`checkpoint ${checkpointId} of volume ${volumeId} is cut`)
    return true
  })

  /** Says so when a checkpoint that was ready is not in the store any more. It is not cut anew: it would be another. */
  const lookAfter = Effect.fnUntraced(function* (
    backend: Checkpoints,
    record: CheckpointRecord,
    wanted: DesiredCheckpoint,
    publish: Publish
  ) {
    yield* publish(readyStatus(record))
    const all = yield* Effect.option(backend.list)
    if (all._tag === "Some" && found(all.value, record.checkpointId) === undefined)
      yield* publish(
        plainly(wanted, "failed", "the store has it no more: name a new checkpoint, and make this one absent")
      )
  })

  const bePresent = Effect.fnUntraced(function* (asked: AskedCheckpoint, publish: Publish) {
    const { wanted } = asked
    if (checkpoints === undefined) return yield* publish(plainly(wanted, "failed", NO_CHECKPOINTS))
    const known = records.get(wanted.checkpointId)
    if (known?.state === "ready") return yield* lookAfter(checkpoints, known, wanted, publish)
    if (isOwnName(wanted.checkpointId)) return yield* publish(plainly(wanted, "failed", OWN_NAME_REFUSED))
    yield* publish(plainly(wanted, "pending"))
    for (let failures = 0; ; ) {
      const tried = yield* Effect.result(cut(checkpoints, asked, publish))
      if (tried._tag === "Success") {
        const record = records.get(wanted.checkpointId)
        if (tried.success && record !== undefined) return yield* publish(readyStatus(record))
        yield* Effect.sleep(lookAgainMs)
        continue
      }
      yield* fail(wanted, ++failures, tried.failure.message, publish)
    }
  })

  const fail = Effect.fnUntraced(function* (
    wanted: DesiredCheckpoint,
    failures: number,
    reason: string,
    publish: Publish
  ) {
    const delay = retryDelayMs(failures)
    const again = triedAgain((yield* Clock.currentTimeMillis) + delay)
    yield* Effect.logWarning(reason)
    yield* publish(plainly(wanted, "failed", `${reason}; ${again}`))
    yield* Effect.sleep(delay)
  })

  const beAbsent = Effect.fnUntraced(function* (wanted: DesiredCheckpoint, publish: Publish) {
    const { checkpointId } = wanted
    const known = records.get(checkpointId)
    const remove = Effect.gen(function* () {
      // The daemon's own are its own to delete.
      if (checkpoints !== undefined && !isOwnName(checkpointId)) {
        if (known !== undefined) yield* save({ ...known, state: "deleting" })
        yield* metrics.storage("checkpoint_delete", checkpoints.delete(checkpointId))
      }
      yield* state.deleteCheckpoint(checkpointId)
      records.delete(checkpointId)
    })
    yield* publish(plainly(wanted, "pending", "it is being deleted"))
    for (let failures = 0; ; ) {
      const tried = yield* Effect.result(remove)
      if (tried._tag === "Success") return yield* publish(plainly(wanted, "deleted"))
      yield* fail(wanted, ++failures, tried.failure.message, publish)
    }
  })

  return yield* makeNamedWork<CheckpointId, AskedCheckpoint, CheckpointStatus>({
    // What is not named any more is kept, and nobody speaks of it.
    known: [],
    noun: "checkpoint",
    onChange,
    work: (_, asked, publish) =>
      asked === undefined
        ? publish(undefined)
        : asked.wanted.desiredState === "absent"
          ? beAbsent(asked.wanted, publish)
          : bePresent(asked, publish)
  })
})
