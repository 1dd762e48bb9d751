/**
 * The host's fiber tree: what an earlier daemon left is taken up, the document is watched, every app has a fiber
 * of its own, and one writer reports.
 */
import { Cause, Clock, Deferred, Effect, FiberMap, Queue, Schedule } from "effect"
import { difference } from "../document/difference.ts"
import { noSuchApp } from "../document/near-names.ts"
import type { AppId, HostDesiredState } from "../document/schema.ts"
import { timed } from "../metrics/host-metrics.ts"
import { HostControl } from "../services/HostControl.ts"
import { type AppRecord, machineOf, type VolumeRecord } from "../services/HostState.ts"
import { MetricsPage } from "../services/MetricsPage.ts"
import { runActivity } from "./activity.ts"
import { runApp } from "./app.ts"
import { askedCheckpoints, makeCheckpoints } from "./checkpoints.ts"
import { byApp, claimsOf, hostnameOwners, unnamed } from "./desired-apps.ts"
import { type DocumentInForce, documentFromNotes, watchDocument } from "./document-watch.ts"
import { askedExports, makeExports } from "./exports.ts"
import { type HostContext, makeHostContext } from "./host-context.ts"
import { runMeasuring } from "./measuring.ts"
import { loadMeters, runMetering } from "./metering.ts"
import { metricsPage } from "./metrics-page.ts"
import type { AppMessage, DesiredApp } from "./model.ts"
import { makeOwnCheckpoints } from "./own-checkpoints.ts"
import { runReporter } from "./reporting.ts"
import { type Told, watchPorts, watchVolumes } from "./troubles.ts"

interface Notes {
  readonly records: ReadonlyMap<AppId, AppRecord>
  readonly volumes: ReadonlyMap<AppId, ReadonlyArray<VolumeRecord>>
}

const readNotes = Effect.fnUntraced(function* (host: HostContext) {
  const records = yield* host.state.apps
  const volumes = yield* host.state.volumes
  return {
    records: new Map(records.map((record) => [record.appId, record])),
    volumes: Map.groupBy(volumes, ({ appId }) => appId)
  } satisfies Notes
})

/** Ends microVMs that no record speaks of: an earlier daemon died before it could write them down. */
const sweep = Effect.fnUntraced(function* (host: HostContext, notes: Notes) {
  const keep = [...notes.records.values()].flatMap((record) => machineOf(record) ?? [])
  const ended = yield* host.hypervisor.sweep(keep.map(({ machineId }) => machineId))
  if (ended.length > 0)
    yield* Effect.logWarning(`ended ${ended.length} microVMs that no app owns: ${ended.join(", ")}`)
  // Nothing boots or wakes before the network is in order: the link of each says so, and why.
  const gone = yield* Effect.catch(host.network.sweep(keep.map(({ slot }) => slot)), (error) =>
    Effect.as(Effect.logError(error.message), [])
  )
  if (gone.length > 0)
    yield* Effect.logWarning(`took down the links of ${gone.length} slots that no app holds`)
})

/** Removes snapshots that no app wakes from any more. Nothing may fall asleep before. */
const sweepSnapshots = Effect.fnUntraced(function* ({ state, hypervisor, settings }: HostContext) {
  const records = yield* state.apps
  // One whose microVM cannot be taken up yet may have been falling asleep, or waking.
  const keep = records.filter((record) => machineOf(record) !== undefined).map(({ appId }) => appId)
  const removed = yield* hypervisor.sweepSnapshots(settings.snapshotDir, keep)
  if (removed.length > 0)
    yield* Effect.logWarning(
      `removed ${removed.length} snapshots that no app wakes from: ${removed.join(", ")}`
    )
})

/** Between the death of an app's fiber and its next life. */
const rebirthMs = 5_000

interface Entry {
  readonly mailbox: Queue.Queue<AppMessage>
  /** The newest that the app was told. */
  desired: DesiredApp
}

interface AppNotes {
  readonly record: AppRecord | undefined
  readonly volumes: ReadonlyArray<VolumeRecord>
}

/** The apps' fibers, by app. */
const makeApps = Effect.fnUntraced(function* (host: HostContext) {
  const fibers = yield* FiberMap.make<AppId>()
  const entries = new Map<AppId, Entry>()

  const notesOf = Effect.fnUntraced(function* (appId: AppId) {
    const { records, volumes } = yield* readNotes(host)
    return { record: records.get(appId), volumes: volumes.get(appId) ?? [] } satisfies AppNotes
  })

  /**
   * One life after another: an app's fiber ends only when nothing of the app is left. One that dies of a defect of
   * ours takes no other with it; it begins anew from the host's notes, as after a restart of the daemon.
   */
  const live = (
    appId: AppId,
    entry: Entry,
    notes: AppNotes,
    looked: Effect.Effect<void>
  ): Effect.Effect<void> => {
    // Both sides of this question run without a pause, so no message falls between the look and the end.
    const mayEnd = () => Queue.sizeUnsafe(entry.mailbox) === 0 && entries.delete(appId)
    const { mailbox, desired } = entry
    return runApp({ host, appId, desired, ...notes, mailbox, mayEnd, looked }).pipe(
      Effect.catchCause((cause) =>
        Cause.hasInterruptsOnly(cause)
          ? Effect.interrupt
          : Effect.logFatal(`the fiber of app ${appId} died`, cause).pipe(
              Effect.andThen(Effect.sleep(rebirthMs)),
              Effect.andThen(notesOf(appId).pipe(Effect.retry(Schedule.spaced(rebirthMs)), Effect.orDie)),
              Effect.flatMap((again) => live(appId, entry, again, Effect.void))
            )
      )
    )
  }

  const begin = Effect.fnUntraced(function* (
    appId: AppId,
    desired: DesiredApp,
    notes: AppNotes,
    looked: Effect.Effect<void>
  ) {
    const entry: Entry = { mailbox: yield* Queue.unbounded<AppMessage>(), desired }
    entries.set(appId, entry)
    yield* FiberMap.run(fibers, appId, Effect.annotateLogs(live(appId, entry, notes, looked), { app: appId }))
  })

  const lookAgain = (appIds: Iterable<AppId>) =>
    Effect.forEach(
      Array.from(appIds, (appId) => entries.get(appId)).filter((entry) => entry !== undefined),
      ({ mailbox }) => Queue.offer(mailbox, { kind: "look-again" }),
      { discard: true }
    )

  return {
    begin,
    /** Something that no app was told of bears on what they say of themselves. */
    lookAgain: {
      everyone: Effect.suspend(() => lookAgain(entries.keys())),
      some: lookAgain
    } satisfies Told,
    /** Asks an app's fiber to put it to sleep; undefined when it sleeps, else the reason why not. */
    sleep: Effect.fnUntraced(function* (appId: string) {
      const entry = entries.get(appId as AppId)
      if (entry === undefined) return noSuchApp(appId, [...entries.keys()])
      const answer = yield* Deferred.make<string | undefined>()
      yield* Deferred.await(host.maySleep)
      yield* Queue.offer(entry.mailbox, { kind: "sleep-due", reason: "forced", answer })
      return yield* Deferred.await(answer)
    }),
    /** Tells an app what the document says of it now; an app that is new to the host gets a fiber. */
    tell: Effect.fnUntraced(function* (appId: AppId, desired: DesiredApp) {
      const entry = entries.get(appId)
      if (entry === undefined)
        return yield* begin(appId, desired, { record: undefined, volumes: [] }, Effect.void)
      entry.desired = desired
      yield* Queue.offer(entry.mailbox, { kind: "desired", desired })
    })
  }
})

/** Checkpoints and exports of volumes. */
const makeCuts = Effect.fnUntraced(function* (host: HostContext, onChange: Effect.Effect<void>) {
  const backend = host.volumes.checkpoints
  const own = backend === undefined ? undefined : yield* makeOwnCheckpoints(backend, host.metrics)
  if (own !== undefined) yield* Effect.forkScoped(own.sweep)
  const checkpoints = yield* makeCheckpoints(host, onChange)
  const exports = yield* makeExports(host, own, onChange)
  return {
    statuses: { checkpoints: checkpoints.statuses, exports: exports.statuses },
    tell: Effect.fnUntraced(function* (document: HostDesiredState | undefined) {
      // Without a document nobody asks for anything, and nothing is forgotten.
      if (document === undefined) return
      yield* checkpoints.tell(askedCheckpoints(document))
      yield* exports.tell(askedExports(document))
    })
  }
})

/** Runs the host until it is interrupted; fails when the host cannot go on. Its microVMs outlive it. */
export const runHost = Effect.gen(function* () {
  const changes = yield* Queue.sliding<void>(1)
  const changed = Effect.asVoid(Queue.offer(changes, undefined))
  const host = yield* makeHostContext(changed)
  const notes = yield* readNotes(host)
  let inForce: DocumentInForce | undefined = yield* documentFromNotes
  let verdict: string | undefined
  yield* sweep(host, notes)

  const giveHostnames = (document: HostDesiredState | undefined) => {
    host.hostnameOwners.clear()
    for (const [hostname, appId] of hostnameOwners(document)) host.hostnameOwners.set(hostname, appId)
  }
  giveHostnames(inForce?.document)

  const apps = yield* makeApps(host)
  const desired = byApp(inForce?.document)
  yield* loadMeters(host)
  if (inForce !== undefined) host.measurements.keepOnly(new Set(desired.keys()))
  yield* host.memory.setClaims(claimsOf(inForce?.document, desired, host.limits))
  const known = new Set([...notes.records.keys(), ...notes.volumes.keys(), ...desired.keys()])
  const unseen = new Set(known)
  const allLooked = yield* Deferred.make<void>()
  const looked = (appId: AppId) =>
    Effect.suspend(() =>
      unseen.delete(appId) && unseen.size === 0
        ? Effect.asVoid(Deferred.succeed(allLooked, undefined))
        : Effect.void
    )
  if (known.size === 0) yield* Deferred.succeed(allLooked, undefined)
  yield* timed(Deferred.await(allLooked)).pipe(
    Effect.flatMap(([seconds]) =>
      Effect.flatMap(Clock.currentTimeMillis, (at) => host.metrics.reconciled("restart", seconds, at))
    ),
    Effect.forkScoped
  )
  yield* Effect.forEach(
    known,
    (appId) =>
      apps.begin(
        appId,
        desired.get(appId) ?? unnamed,
        { record: notes.records.get(appId), volumes: notes.volumes.get(appId) ?? [] },
        looked(appId)
      ),
    { discard: true }
  )

  const cuts = yield* makeCuts(host, changed)
  yield* cuts.tell(inForce?.document)

  const onAccepted = Effect.fnUntraced(function* (accepted: DocumentInForce) {
    const touched = difference(inForce?.document, accepted.document).appIds
    inForce = accepted
    yield* Effect.logInfo(
      `accepted a document that touches ${touched.size === 1 ? "one app" : `${touched.size} apps`}`
    )
    // First what the document wants in all, so that the order in which apps ask for memory does not matter.
    const wanted = byApp(accepted.document)
    yield* host.memory.setClaims(claimsOf(accepted.document, wanted, host.limits))
    host.measurements.keepOnly(new Set(wanted.keys()))
    giveHostnames(accepted.document)
    yield* Effect.forEach(touched, (appId) => apps.tell(appId, wanted.get(appId) ?? unnamed), {
      discard: true
    })
    yield* cuts.tell(accepted.document)
    yield* changed
  })
  const onVerdict = (reason: string | undefined) =>
    Effect.suspend(() => {
      const news = verdict !== reason
      verdict = reason
      return news ? changed : Effect.void
    })

  const { address } = host.proxy
  if (address !== undefined) yield* Effect.logInfo(`serves hostnames on ${address.host}:${address.port}`)
  yield* Effect.addFinalizer(() => Effect.logInfo("ends; its microVMs run on, and nobody is routed to them"))

  const told = { host, ...cuts.statuses, allLooked, document: () => ({ inForce, verdict }) }
  yield* (yield* HostControl).offer({ sleep: apps.sleep })
  const page = yield* MetricsPage
  yield* page.offer(metricsPage(told))
  const watching = watchDocument(inForce, { metrics: host.metrics, onAccepted, onVerdict })
  const reporting = runReporter({ ...told, changes })
  const sleeping = Deferred.await(allLooked).pipe(
    Effect.andThen(host.proxy.routesComplete),
    Effect.andThen(Effect.catch(sweepSnapshots(host), (error) => Effect.logError(error.message))),
    Effect.andThen(Deferred.succeed(host.maySleep, undefined)),
    Effect.andThen(runActivity(host))
  )
  yield* Effect.all(
    [
      watching,
      reporting,
      runMeasuring(host),
      runMetering(host, changed),
      sleeping,
      watchVolumes(host, apps.lookAgain),
      watchPorts(host, apps.lookAgain)
    ],
    {
      concurrency: "unbounded",
      discard: true
    }
  )
}).pipe(Effect.scoped)
