/** The exports that the document names: each is written once, and remembered until it is `absent`. */
import { Clock, Effect, Predicate } from "effect"
import type { DesiredExport, DesiredVolume, ExportId, HostDesiredState } from "../document/schema.ts"
import { envFile } from "../export/env-file.ts"
import type { ExportReport } from "../report/schema.ts"
import { BundleWriter, type LeftOut } from "../services/BundleWriter.ts"
import { ExportStore } from "../services/ExportStore.ts"
import type { ExportRecord } from "../services/HostState.ts"
import { type Checkpoints, NO_CHECKPOINTS } from "../services/VolumeBackend.ts"
import { planCut, volumeIsThere } from "./checkpoints.ts"
import { cutVolume, VolumeBusy } from "./cutting.ts"
import type { HostContext } from "./host-context.ts"
import { makeNamedWork } from "./named-work.ts"
import { type OwnCheckpoints, ownName } from "./own-checkpoints.ts"
import { retryDelayMs, triedAgain } from "./retry-delay.ts"

/** What the document asks of one export. */
export interface AskedExport {
  readonly wanted: DesiredExport
  /** The volume as the document has it. */
  readonly volume: Pick<DesiredVolume, "appId" | "desiredState"> | undefined
}

export interface ExportStatus {
  readonly exportId: ExportId
  readonly state: ExportReport["state"]
  readonly sizeBytes: number | undefined
  /** ms since 1970. */
  readonly readyAt: number | undefined
  readonly message: string | undefined
}

/** What is asked of all exports by a document. Pure. */
export const askedExports = (document: HostDesiredState | undefined): ReadonlyMap<ExportId, AskedExport> => {
  const volumes = new Map(document?.volumes.map((volume) => [volume.volumeId, volume]))
  return new Map(
    document?.exports.map((wanted) => {
      const volume = volumes.get(wanted.volumeId)
      return [
        wanted.exportId,
        { wanted, volume: volume && { appId: volume.appId, desiredState: volume.desiredState } }
      ]
    })
  )
}

/** What is to be known of a bundle that is written: what is not in it, and what of it reads back in one way only. Pure. */
export const remarkOn = (left: LeftOut, shellOnly: ReadonlyArray<string>): string | undefined => {
  const counted = (count: number, one: string) =>
    count === 0 ? [] : [`${count} ${one}${count === 1 ? "" : "s"}`]
  const out = [
    ...counted(left.sockets, "socket"),
    ...counted(left.fifos, "FIFO"),
    ...counted(left.devices, "device")
  ]
  const remarks = [
    ...(out.length === 0 ? [] : [`left out: ${out.join(", ")}`]),
    ...(shellOnly.length === 0 ? [] : [`of .env only a shell reads ${shellOnly.join(", ")} back right`])
  ]
  return remarks.length === 0 ? undefined : remarks.join("; ")
}

const mib = (bytes: number): number => Math.floor(bytes / 2 ** 20)

const plainly = (exportId: ExportId, state: ExportStatus["state"], message?: string): ExportStatus => ({
  exportId,
  state,
  sizeBytes: undefined,
  readyAt: undefined,
  message
})

const readyStatus = ({ exportId, sizeBytes, readyAt, remark }: ExportRecord): ExportStatus => ({
  exportId,
  state: "ready",
  sizeBytes,
  readyAt,
  message: remark
})

/** Waited for again after so long what is about to change. */
const lookAgainMs = 1_000
/** A tar has a little more than the files in it. */
const overheadBytes = 2 ** 24

/** The fibers of all exports. Nothing else on the host waits for them. */
export const makeExports = Effect.fnUntraced(function* (
  host: HostContext,
  own: OwnCheckpoints | undefined,
  onChange: Effect.Effect<void>
) {
  const { state, volumes, metrics } = host
  const store = yield* ExportStore
  const bundles = yield* BundleWriter
  const records = new Map((yield* state.exports).map((record) => [record.exportId, record]))

  type Publish = (status: ExportStatus | undefined) => Effect.Effect<void>

  /** The bundle of a checkpoint, into the store. */
  const write = Effect.fnUntraced(function* (
    checkpoints: Checkpoints,
    wanted: DesiredExport,
    publish: Publish
  ) {
    const { exportId, volumeId, objectKey, environment } = wanted
    const say = (message: string) => publish(plainly(exportId, "preparing", message))
    yield* say("the volume is cut; its checkpoint is being opened")
    const volume = yield* checkpoints.open(ownName(exportId), volumeId)
    const file = environment === undefined || environment === null ? undefined : envFile(environment)
    const at = yield* Clock.currentTimeMillis
    const bundle = yield* bundles.open({ volume, environment: file?.text, at })
    const { sizeBytes } = yield* store.put(objectKey, bundle.contents, {
      expectedBytes: bundle.usedBytes + overheadBytes,
      onProgress: ({ bytes }) =>
        say(`${mib(bytes)} MiB of the bundle are written; the volume holds ${mib(bundle.usedBytes)} MiB`)
    })
    const remark = remarkOn(yield* bundle.leftOut, file?.shellOnly ?? [])
    const readyAt = yield* Clock.currentTimeMillis
    return {
      exportId,
      sizeBytes,
      readyAt,
      ...(remark === undefined ? {} : { remark })
    } satisfies ExportRecord
  }, Effect.scoped)

  /** One try, from the cut to the note that it is done. */
  const attempt = Effect.fnUntraced(function* (
    checkpoints: Checkpoints,
    discard: OwnCheckpoints["discard"],
    { wanted, volume }: AskedExport,
    publish: Publish
  ) {
    const { exportId, appId, volumeId } = wanted
    const plan = planCut(volumeId, volume, volumeIsThere(host, volume, volumeId))
    if (plan.kind !== "cut") return yield* new VolumeBusy({ reason: plan.reason })
    const use = host.volumeUsers.of(appId, volumeId)
    if (use.kind === "changing") return yield* new VolumeBusy({ reason: use.reason })
    yield* publish(plainly(exportId, "preparing", "the volume is being cut"))
    const name = ownName(exportId)
    const record = yield* Effect.ensuring(
      Effect.andThen(
        cutVolume(host, { appId, volumeId, checkpoints, name, use }),
        metrics
          .storage("export_write", write(checkpoints, wanted, publish))
          .pipe(Effect.tap((done) => state.saveExport(done)))
      ),
      discard(name)
    )
    records.set(exportId, record)
    yield* Effect.logInfo(`export ${exportId} of volume ${volumeId} is written: ${record.sizeBytes} bytes`)
    return record
  })

  const refused = ({ wanted, volume }: AskedExport): string | undefined => {
    if (volumes.checkpoints === undefined) return NO_CHECKPOINTS
    if (!host.settings.hasExportStore)
      return "config.toml has no section [exports], which names the store (exports.store_url)"
    const plan = planCut(wanted.volumeId, volume, true)
    return plan.kind === "refuse" ? plan.reason : undefined
  }

  const bePresent = Effect.fnUntraced(function* (asked: AskedExport, publish: Publish) {
    const { exportId } = asked.wanted
    const known = records.get(exportId)
    if (known !== undefined) return yield* publish(readyStatus(known))
    const refusal = refused(asked)
    const { checkpoints } = volumes
    if (refusal !== undefined || checkpoints === undefined || own === undefined)
      return yield* publish(plainly(exportId, "failed", refusal))
    yield* publish(plainly(exportId, "pending", "waiting for its turn: one export is written at a time"))
    for (let failures = 0; ; ) {
      const tried = yield* Effect.result(own.turn(attempt(checkpoints, own.discard, asked, publish)))
      if (tried._tag === "Success") return yield* publish(readyStatus(tried.success))
      const { message } = tried.failure
      if (Predicate.isTagged(tried.failure, "VolumeBusy")) {
        yield* publish(plainly(exportId, "pending", message))
        yield* Effect.sleep(lookAgainMs)
        continue
      }
      const delay = retryDelayMs(++failures)
      const again = triedAgain((yield* Clock.currentTimeMillis) + delay)
      yield* Effect.logWarning(`export ${exportId}: ${message}; ${again}`)
      yield* publish(plainly(exportId, "failed", `${message}; ${again}`))
      yield* Effect.sleep(delay)
    }
  })

  /** What was written stays where it is; the host only forgets that it was. */
  const forget = Effect.fnUntraced(function* (exportId: ExportId, publish: Publish) {
    for (let failures = 0; ; ) {
      const tried = yield* Effect.result(state.deleteExport(exportId))
      if (tried._tag === "Success") break
      yield* Effect.logError(tried.failure.message)
      yield* Effect.sleep(retryDelayMs(++failures))
    }
    records.delete(exportId)
    yield* publish(undefined)
  })

  return yield* makeNamedWork<ExportId, AskedExport, ExportStatus>({
    known: records.keys(),
    noun: "export",
    onChange,
    work: (exportId, asked, publish) =>
      asked === undefined || asked.wanted.desiredState === "absent"
        ? forget(exportId, publish)
        : bePresent(asked, publish)
  })
})
