/**
 * A host for one checkout: a folder that holds all of its state, a configuration for it, and the daemon as a child
 * process. It is driven like every host, by its document, and read by its report.
 */

import { createHash } from "node:crypto"
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { ChildProcess, type ChildProcessSpawner } from "effect/process"
import { stringify } from "smol-toml"
import type { ZerofsSection } from "../../src/config/schema.ts"
import { attempt, Problem } from "./problem.ts"

/** The project's folder. */
export const checkout = join(import.meta.dirname, "../..")

/** Where `npm run image` puts the guest image. */
export const guestImage = join(checkout, ".nibrunner/guest")

export interface LocalHost {
  /** Everything of this host is in here. */
  readonly folder: string
  readonly config: string
  readonly desired: string
  readonly reported: string
  readonly artifacts: string
  readonly log: string
  readonly logs: string
  readonly runtime: string
  readonly snapshots: string
  readonly proxyPort: number
}

/** A port of the loopback address that nothing listens on: `preferred` when it is free. */
export const freePort = (preferred: number): Effect.Effect<number, Problem> => {
  const probe = (port: number) =>
    Effect.callback<number, Problem>((resume) => {
      const server = createServer()
      server.once("error", (error) =>
        resume(new Problem({ message: `no port for the proxy: ${error.message}` }))
      )
      server.listen(port, "127.0.0.1", () => {
        const address = server.address()
        server.close(() =>
          resume(
            typeof address === "object" && address !== null
              ? Effect.succeed(address.port)
              : new Problem({ message: "no port for the proxy: the system gave none" })
          )
        )
      })
    })
  return probe(preferred).pipe(Effect.catchTag("Problem", () => probe(0)))
}

/**
 * Makes the host's folders and writes its configuration. What an earlier run left there is kept. Guests are on the user
 * network where nothing is said: it changes nothing on the machine.
 */
export const layOut = (
  folder: string,
  options: {
    readonly maxApps: number
    readonly proxyPort: number
    readonly network?: "tap" | "user"
    /** Volumes are on this ZeroFS, which runs already; else they are files of this host. */
    readonly zerofs?: ZerofsSection
    /** Raw ports that an app may have; none when nothing is said. */
    readonly rawPorts?: number
  }
): Effect.Effect<LocalHost, Problem> =>
  attempt(`the host's folder ${folder} cannot be laid out`, () => {
    const host: LocalHost = {
      folder,
      config: join(folder, "config.toml"),
      desired: join(folder, "desired.json"),
      reported: join(folder, "state/reported.json"),
      artifacts: join(folder, "artifacts"),
      log: join(folder, "daemon.log"),
      logs: join(folder, "state/logs"),
      runtime: join(folder, "run"),
      snapshots: join(folder, "snapshots"),
      proxyPort: options.proxyPort
    }
    for (const part of [host.artifacts, host.runtime, join(folder, "state"), join(folder, "snapshots")]) {
      mkdirSync(part, { recursive: true, mode: 0o700 })
    }
    const config = {
      max_apps: options.maxApps,
      paths: {
        state_dir: join(folder, "state"),
        runtime_dir: host.runtime,
        snapshot_dir: join(folder, "snapshots"),
        guest_image_dir: guestImage,
        desired_state_file: host.desired
      },
      artifacts: { store_url: host.artifacts },
      ...(options.zerofs === undefined
        ? { volumes: { backend: "local-file", storage_prefix: "volumes" } }
        : {
            volumes: { backend: "zerofs", storage_prefix: "volumes", zerofs: options.zerofs },
            exports: { store_url: join(folder, "exports"), staging_dir: join(folder, "staging") }
          }),
      proxy: {
        http: { listen_address: "127.0.0.1", port: options.proxyPort },
        ...(options.rawPorts === undefined
          ? {}
          : { raw: { listen_address: "127.0.0.1", max_ports_per_guest: options.rawPorts } })
      },
      hypervisor: {
        backend: "qemu",
        binary: "/usr/bin/qemu-system-x86_64",
        network: options.network ?? "user"
      }
    }
    writeFileSync(host.config, `${stringify(config)}\n`)
    return host
  })

/** Replaces the host's document as a whole, as whoever writes one must; gives the digest that the report will name. */
export const writeDocument = (host: LocalHost, document: unknown): Effect.Effect<string, Problem> =>
  attempt(`the document ${host.desired} cannot be written`, () => {
    const text = `${JSON.stringify(document, null, 2)}\n`
    const half = `${host.desired}.new`
    const file = openSync(half, "w")
    writeFileSync(file, text)
    fsyncSync(file)
    closeSync(file)
    renameSync(half, host.desired)
    return createHash("sha256").update(text).digest("hex")
  })

/** The last lines of the daemon's log, for whoever has to find out why it ended. */
const lastWords = (host: LocalHost) =>
  attempt("the daemon's log cannot be read", () => readFileSync(host.log, "utf8").trim().split("\n")).pipe(
    Effect.map((lines) => lines.slice(-5)),
    Effect.orElseSucceed((): ReadonlyArray<string> => [])
  )

export interface Daemon {
  readonly pid: number
  /** Fails when the daemon ends by itself, with its last words. Never succeeds. */
  readonly ended: Effect.Effect<never, Problem>
}

/**
 * Starts `nibrunnerd daemon`; when the scope closes it is told to end, as systemd would. Its log is `host.log`, new
 * for each start. Should this process be killed, the kernel ends the daemon too.
 */
export const startDaemon = (
  host: LocalHost
): Effect.Effect<Daemon, Problem, Scope.Scope | ChildProcessSpawner.ChildProcessSpawner> =>
  Effect.gen(function* () {
    const command = 'exec setpriv --pdeathsig TERM -- "$0" daemon >"$1" 2>&1'
    const handle = yield* ChildProcess.make(
      "sh",
      ["-c", command, join(checkout, "bin/nibrunnerd"), host.log],
      {
        stdin: "ignore",
        stdout: "ignore",
        stderr: "inherit",
        env: { NIBRUNNER_CONFIG: host.config },
        extendEnv: true,
        killSignal: "SIGTERM",
        forceKillAfter: "20 seconds"
      }
    )
    const ended = Effect.gen(function* () {
      const how = yield* handle.exitCode.pipe(
        Effect.map((code) => `ended with exit code ${code}`),
        Effect.orElseSucceed(() => "was killed")
      )
      const words = yield* lastWords(host)
      return yield* new Problem({ message: [`the daemon ${how} (${host.log})`, ...words].join("\n    ") })
    })
    return { pid: handle.pid, ended }
  }).pipe(
    Effect.catchTag(
      "PlatformError",
      (error) => new Problem({ message: `the daemon could not be started: ${error.message}` })
    )
  )
