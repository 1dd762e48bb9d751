/** A real host for a test: the daemon as a child process, driven by its document and read by its report. */
import { createHash } from "node:crypto"
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs"
import * as http from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Exit, Schedule, Scope } from "effect"
import { freePort, type LocalHost, layOut, startDaemon, writeDocument } from "../../scripts/local/host.ts"
import { processesWith } from "../../scripts/local/processes.ts"
import { awaitReport, instanceOf, readReport } from "../../scripts/local/report.ts"
import type { ZerofsSection } from "../../src/config/schema.ts"
import type { HostReport, InstanceReport } from "../../src/report/schema.ts"
import { buildTenant } from "../tenant/build.ts"
import { endMachines } from "./qemu.ts"

export { processesWith }

/** VMMs of a host: QEMU with its runtime directory on the command line. */
export const vmmsOf = (host: LocalHost): ReadonlyArray<number> =>
  processesWith(host.runtime).filter((pid) => {
    try {
      return readlinkSync(`/proc/${pid}/exe`).includes("qemu")
    } catch {
      return false
    }
  })

/** What lies in a host's `snapshot_dir`, but for the lock of its daemon. */
export const snapshotsIn = (host: LocalHost): ReadonlyArray<string> =>
  readdirSync(host.snapshots).filter((name) => name !== ".daemon")

const kill = (pid: number) => {
  try {
    process.kill(pid, "SIGKILL")
  } catch {
    // it has ended already
  }
}

export interface HostOptions {
  readonly maxApps?: number
  readonly network?: "tap" | "user"
  readonly zerofs?: ZerofsSection
  readonly rawPorts?: number
  /** Boots and wakes at a time: more than there are processors only wait for each other, without KVM past their time. */
  readonly starts?: number
}

/** A host laid out in a folder of its own; whatever of it still runs is ended with the scope, and the folder removed. */
export const makeHost = (options: HostOptions = {}) =>
  Effect.gen(function* () {
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "nibrunner-host-"))),
      (path) =>
        Effect.gen(function* () {
          for (const pid of processesWith(path)) kill(pid)
          yield* endMachines(join(path, "run"))
          rmSync(path, { recursive: true, force: true })
        })
    )
    const proxyPort = yield* freePort(0)
    const host = yield* layOut(folder, {
      maxApps: options.maxApps ?? 16,
      proxyPort,
      network: options.network ?? "user",
      ...(options.rawPorts === undefined ? {} : { rawPorts: options.rawPorts }),
      ...(options.zerofs === undefined ? {} : { zerofs: options.zerofs })
    })
    if (options.starts !== undefined) {
      const config = readFileSync(host.config, "utf8")
      writeFileSync(host.config, `max_concurrent_vm_starts = ${options.starts}\n${config}`)
    }
    return host
  })

/** A daemon that is stopped by `stop` (SIGTERM, its end awaited) or ended at once by `kill`. */
export const runDaemon = (host: LocalHost) =>
  Effect.gen(function* () {
    const outer = yield* Effect.scope
    const scope = yield* Scope.fork(outer)
    const daemon = yield* startDaemon(host).pipe(Scope.provide(scope))
    const stop = Scope.close(scope, Exit.void)
    return {
      ...daemon,
      stop,
      kill: Effect.andThen(
        Effect.sync(() => kill(daemon.pid)),
        stop
      )
    }
  })

/** Puts bytes into the host's artifact store and gives their digest. */
export const putObject = (host: LocalHost, objectKey: string, bytes: Uint8Array): string => {
  writeFileSync(join(host.artifacts, objectKey), bytes)
  return createHash("sha256").update(bytes).digest("hex")
}

export const executableLayer = (digest: string, objectKey = "tenant", destinationPath = "/app/server") => ({
  kind: "executable",
  digest,
  objectKey,
  destinationPath
})

/** Puts the test program into the host's store and gives the layer that names it. */
export const tenantLayer = (host: LocalHost) =>
  Effect.map(buildTenant, (path) => executableLayer(putObject(host, "tenant", readFileSync(path))))

/** A host with the test program in its store, whose daemon has no document yet. */
export const startHost = (options: HostOptions = {}) =>
  Effect.gen(function* () {
    const host = yield* makeHost(options)
    const tenant = yield* tenantLayer(host)
    const daemon = yield* runDaemon(host)
    return { host, tenant, daemon }
  })

export interface Changes {
  readonly deploymentId?: string
  readonly desiredState?: string
  readonly args?: ReadonlyArray<string>
  readonly program?: string
  readonly environment?: Record<string, string>
  readonly healthCheck?: Record<string, unknown>
  readonly restartPolicy?: Record<string, unknown>
  readonly memoryMib?: number
  readonly layers?: ReadonlyArray<unknown>
  readonly activation?: unknown
  readonly ports?: ReadonlyArray<{ readonly name: string; readonly guestPort: number }>
}

/** An instance of the test program, as it stands in a document. */
export const instance = (appId: string, layer: unknown, changes: Changes = {}) => ({
  appId,
  deploymentId: changes.deploymentId ?? "dep-1",
  volumeId: `${appId}-vol`,
  desiredState: changes.desiredState ?? "running",
  layers: changes.layers ?? [layer],
  hostnames: [{ hostname: `${appId}.example.com`, kind: "platform" }],
  ...(changes.activation === undefined ? {} : { activation: changes.activation }),
  config: {
    httpPort: 3000,
    ...(changes.ports === undefined ? {} : { ports: changes.ports }),
    command: {
      program: changes.program ?? "/app/server",
      args: changes.args ?? [],
      workingDirectory: "/app/data",
      environment: changes.environment ?? {}
    },
    resources: { vcpuCount: 1, memoryMib: changes.memoryMib ?? 128 },
    healthCheck: changes.healthCheck ?? {
      kind: "http",
      path: "/",
      intervalMs: 1000,
      timeoutMs: 5000,
      gracePeriodMs: 60_000,
      healthyThreshold: 1,
      unhealthyThreshold: 3
    },
    restartPolicy: {
      maxRestarts: 3,
      initialBackoffMs: 100,
      maxBackoffMs: 1000,
      backoffFactor: 2,
      resetAfterMs: 600_000,
      ...changes.restartPolicy
    }
  }
})

export const volume = (appId: string, changes: Record<string, unknown> = {}) => ({
  volumeId: `${appId}-vol`,
  appId,
  sizeBytes: 64 * 2 ** 20,
  desiredState: "present",
  ...changes
})

export const document = (volumes: ReadonlyArray<unknown>, instances: ReadonlyArray<unknown>) => ({
  hostId: "host-1",
  volumes,
  instances,
  checkpoints: [],
  exports: []
})

/** A document of these instances, each on a volume of its own. */
export const documentOf = (...instances: ReadonlyArray<{ readonly appId: string }>) =>
  document(
    instances.map(({ appId }) => volume(appId)),
    instances
  )

/** Replaces the document, and gives the time from which on the report may speak of it. */
export const put = (host: LocalHost, desired: unknown) => Effect.as(writeDocument(host, desired), undefined)

const limit = "4 minutes"

/** Waits until the report says of the app what the test waits for. */
export const awaitInstance = (
  host: LocalHost,
  appId: string,
  what: string,
  condition: (instance: InstanceReport) => boolean
) =>
  awaitReport(
    host,
    `${appId}: ${what}`,
    0,
    (report) => {
      const found = instanceOf(report, appId)
      return found !== undefined && condition(found) ? found : undefined
    },
    limit
  ).pipe(
    Effect.tapError(() =>
      Effect.ignore(
        Effect.flatMap(readReport(host), (report) => Effect.logError(JSON.stringify(report.instances)))
      )
    )
  )

export const awaitState = (host: LocalHost, appId: string, state: InstanceReport["state"]) =>
  awaitInstance(host, appId, state, (found) => found.state === state)

export const awaitHost = (host: LocalHost, what: string, condition: (report: HostReport) => boolean) =>
  awaitReport(host, what, 0, (report) => (condition(report) ? report : undefined), limit)

export interface Answer {
  readonly status: number
  readonly body: string
}

/** One request on a connection of its own, through the proxy. */
export const request = (host: LocalHost, appId: string, path = "/"): Effect.Effect<Answer, Error> =>
  Effect.callback<Answer, Error>((resume) => {
    const sent = http.get(
      {
        host: "127.0.0.1",
        port: host.proxyPort,
        path,
        headers: { host: `${appId}.example.com` },
        agent: false
      },
      (response) => {
        let body = ""
        response.setEncoding("utf8")
        response.on("data", (chunk: string) => {
          body += chunk
        })
        response.on("end", () => resume(Effect.succeed({ status: response.statusCode ?? 0, body })))
        response.on("error", (error) => resume(Effect.fail(error)))
      }
    )
    sent.on("error", (error) => resume(Effect.fail(error)))
    return Effect.sync(() => sent.destroy())
  }).pipe(
    Effect.timeoutOrElse({
      duration: "60 seconds",
      orElse: () => Effect.fail(new Error("no answer in a minute"))
    })
  )

/** What the app answers, as its status and its body without white space around it. */
export const bodyOf = (host: LocalHost, path: string, appId = "app-1"): Effect.Effect<string, Error> =>
  Effect.map(request(host, appId, path), ({ status, body }) => `${status} ${body.trim()}`)

/** Waits until a daemon that was just started knows its apps: before, it asks everybody to come back. */
export const awaitListening = (host: LocalHost) =>
  request(host, "nobody").pipe(
    Effect.filterOrFail(({ status }) => status === 404),
    Effect.retry({ schedule: Schedule.spaced("50 millis"), times: 1_200 })
  )
