/** A host whose apps are asleep, for benches: a daemon, as many copies of the example app as are asked for, and its VMMs. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Clock, Effect } from "effect"
import { prepareHello } from "../../scripts/local/hello.ts"
import { freePort, type LocalHost, layOut, startDaemon, writeDocument } from "../../scripts/local/host.ts"
import { attempt, Problem } from "../../scripts/local/problem.ts"
import { awaitReport, instanceOf } from "../../scripts/local/report.ts"
import { sleepNow } from "../../scripts/local/sleep.ts"
import { AppId, type DesiredInstance, type HostDesiredState, VolumeId } from "../../src/document/schema.ts"

export interface App {
  readonly appId: string
  readonly hostname: string
  readonly path: string
  readonly guestPort: number
}

/** The command line of the VMM that runs now with this app's volume. */
const runningVmm = (host: LocalHost, volumeId: string) =>
  attempt(`the VMM of ${volumeId} cannot be found`, () => {
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/u.test(name))) {
      try {
        const words = readFileSync(join("/proc", pid, "cmdline"), "utf8")
          .split("\0")
          .slice(0, -1)
        const own = words.some((word) => word.includes(`${host.runtime}/`))
        if (own && words.includes("-blockdev") && words.some((word) => word.includes(`${volumeId}`)))
          return words
      } catch {
        // it ended while we looked
      }
    }
    throw new Error("no process has its volume in its command line")
  })

/** The document of so many copies of the example app, all `on-request`. */
const copies = (desired: HostDesiredState, instance: DesiredInstance, apps: ReadonlyArray<App>) => ({
  ...desired,
  volumes: apps.flatMap(({ appId }) =>
    desired.volumes.map((volume) => ({
      ...volume,
      appId: AppId.make(appId),
      volumeId: VolumeId.make(`${appId}-data`)
    }))
  ),
  instances: apps.map(({ appId, hostname }) => ({
    ...instance,
    appId: AppId.make(appId),
    volumeId: VolumeId.make(`${appId}-data`),
    desiredState: "on-request" as const,
    hostnames: [{ hostname, kind: "platform" as const }]
  }))
})

const limit = "4 minutes"

/** Boots the apps, one after the other; ends with the scope, and nothing of it stays. */
export const hostOfSleepers = (count: number) =>
  Effect.gen(function* () {
    const folder = yield* Effect.acquireRelease(
      attempt("no folder for the host", () => mkdtempSync(join(tmpdir(), "nibrunner-wake-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true }))
    )
    const host = yield* layOut(folder, { maxApps: count, proxyPort: yield* freePort(0) })
    const hello = yield* prepareHello(host)
    const desired = hello.document("running")
    const [instance] = desired.instances
    if (!instance) return yield* new Problem({ message: "the example names no app" })
    const apps = Array.from({ length: count }, (_, index): App => {
      const appId = `app${index}`
      const { httpPort: guestPort } = instance.config
      return { appId, hostname: `${appId}.localhost`, path: hello.healthPath, guestPort }
    })
    const since = yield* Clock.currentTimeMillis
    const daemon = yield* startDaemon(host)
    yield* awaitReport(host, "the daemon's start", since, () => true).pipe(Effect.raceFirst(daemon.ended))
    const isIn = (appId: string, states: ReadonlyArray<string>, what: string) =>
      awaitReport(
        host,
        `${appId} ${what}`,
        since,
        (report) => (states.includes(instanceOf(report, appId)?.state ?? "") ? true : undefined),
        limit
      ).pipe(Effect.raceFirst(daemon.ended))

    yield* Effect.addFinalizer(() =>
      writeDocument(host, { ...desired, volumes: [], instances: [] }).pipe(
        Effect.andThen(
          awaitReport(host, "the end of the apps", since, (report) =>
            report.instances.length === 0 ? true : undefined
          )
        ),
        Effect.timeout("1 minute"),
        Effect.ignore
      )
    )
    yield* writeDocument(host, copies(desired, instance, apps))
    const booted = new Map<string, ReadonlyArray<string>>()
    for (const { appId } of apps) {
      yield* isIn(appId, ["running"], "comes up")
      booted.set(appId, yield* runningVmm(host, `${appId}-data`))
    }

    /** Puts the app to sleep; gives its snapshot's folder, and what its VMM was started with. */
    const sleep = Effect.fnUntraced(function* ({ appId }: App) {
      yield* sleepNow(host, appId)
      const words = booted.get(appId)
      if (words === undefined) return yield* new Problem({ message: `${appId} was never up` })
      return { snapshot: join(folder, "snapshots", appId), booted: words }
    })
    return { host, folder, apps, sleep }
  })
