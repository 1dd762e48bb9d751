/**
 * What one changed app costs on a host that is full, and on one with 100 apps: CPU from the rename of the document
 * to the report, against a script that reads, hashes and parses such a document and writes such a report.
 */
import { type ChildProcess, execFileSync, fork } from "node:child_process"
import { createHash } from "node:crypto"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { rolldown } from "rolldown"
import config from "../rolldown.config.ts"
import { attempt, Problem } from "../scripts/local/problem.ts"
import { MAX_SLOTS } from "../src/config/ports.ts"
import type { Answer, Order, Reread, RereadAnswer, Rest } from "./converge/host.ts"
import type { Bench } from "./support/bench.ts"
import { documentOf } from "./support/large-document.ts"

const RUNS = 11
const SMALL = 100
/** Longer than the engine waits before it gives back what it has no use for. */
const REST_MS = 30_000

/** All apps run; one of them is another release in each run, and its environment another. */
const documentText = (apps: number, run: number): string => {
  const document = documentOf(apps)
  const instances = document.instances.map((instance, n) => ({
    ...instance,
    deploymentId: n === apps >> 1 ? `deploy-run-${run}` : instance.deploymentId,
    desiredState: "running",
    config: { ...instance.config, healthCheck: { kind: "boot-completed" } }
  }))
  return JSON.stringify({ ...document, instances })
}

const ask = <A>(child: ChildProcess, message: object) =>
  Effect.callback<A, Problem>((resume) => {
    const ended = (code: number | null) =>
      resume(new Problem({ message: `a process of the bench ended with ${code}` }))
    child.once("exit", ended)
    child.once("message", (answer) => {
      child.off("exit", ended)
      resume(Effect.succeed(answer as A))
    })
    child.send(message)
  }).pipe(
    Effect.timeoutOrElse({
      duration: "10 minutes",
      orElse: () => new Problem({ message: "a process of the bench did not answer in time" })
    })
  )

/** The daemon of the bench as one file, made the way the program is that is installed. */
const bundled = (folder: string) =>
  Effect.tryPromise({
    try: async () => {
      const [program] = config.slice(-1)
      const build = await rolldown({ ...program, input: join(import.meta.dirname, "converge/host.ts") })
      const file = join(folder, "host.mjs")
      await build.write({ format: "esm", file, codeSplitting: false })
      await build.close()
      return file
    },
    catch: (error) => new Problem({ message: `the daemon of the bench cannot be bundled: ${error}` })
  })

/** What the launcher gives the daemon. */
const launched = attempt("the launcher cannot be read", () => {
  const launcher = readFileSync(join(import.meta.dirname, "../bin/nibrunnerd"), "utf8")
  const words = (name: string) => {
    const value = new RegExp(`^${name}="?([^"\\n]+)"?$`, "mu").exec(launcher)?.[1]
    if (value === undefined) throw new Error(`it has no ${name}`)
    return value.split(" ")
  }
  const variables = words("daemon_environment").map((word) => word.split("=") as [string, string])
  return { flags: words("daemon_flags"), environment: Object.fromEntries(variables) }
})

interface Daemon {
  readonly file: string
  readonly flags: ReadonlyArray<string>
  readonly environment: Readonly<Record<string, string | undefined>>
}

const started = ({ file, flags, environment }: Daemon, folder: string) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      fork(file, [folder], {
        execArgv: [...flags],
        env: { ...process.env, ...environment },
        stdio: ["ignore", "ignore", "inherit", "ipc"]
      })
    ),
    (process) => Effect.sync(() => process.kill("SIGKILL"))
  )

interface Least {
  readonly workMs: number
  readonly allMs: number
}

/** The script that does the least, as a process of its own. */
const least = (folder: string, document: string) =>
  attempt("the script cannot be run", (): Least => {
    const bytes = statSync(join(folder, "reported.json")).size
    const words = [
      join(import.meta.dirname, "converge/baseline.mjs"),
      document,
      join(folder, "least.json"),
      `${bytes}`
    ]
    return JSON.parse(execFileSync(process.execPath, words, { encoding: "utf8" }))
  })

const measure = (daemon: Daemon, apps: number, folder: string, say: (text: string) => Effect.Effect<void>) =>
  Effect.gen(function* () {
    yield* attempt("no folder for the host", () => mkdirSync(folder, { recursive: true }))
    const host = yield* started(daemon, folder)
    const file = join(folder, "next.json")
    const order = (run: number) =>
      attempt("the document cannot be written", (): Order => {
        const text = documentText(apps, run)
        writeFileSync(file, text)
        return { file, digest: createHash("sha256").update(text).digest("hex"), settled: run === 0 }
      })
    const settled = yield* ask<Answer>(host, yield* order(0))
    yield* say(`${apps} apps run after ${(settled.cpuMs / 1000).toFixed(1)} s of CPU`)
    const ratios: Array<number> = []
    const warm: Array<number> = []
    let busyRssMib = 0
    for (let run = 1; run <= RUNS; run++) {
      const next = yield* order(run)
      const script = yield* least(folder, file)
      const ours = yield* ask<Answer>(host, next)
      ratios.push(ours.cpuMs / script.allMs)
      warm.push(ours.cpuMs / script.workMs)
      busyRssMib = Math.max(busyRssMib, ours.rssMib)
      yield* say(
        `${apps} apps, run ${run}: ${ours.cpuMs.toFixed(1)} ms of CPU, the script ${script.allMs.toFixed(1)} ms, of which its work ${script.workMs.toFixed(1)} ms`
      )
    }
    // The last document once more, under a new inode: all that a daemon knows of it is that it may have changed.
    const rereads: Array<number> = []
    for (let run = 1; run <= RUNS; run++) {
      const again = yield* attempt("the document cannot be written", (): Reread => {
        writeFileSync(file, documentText(apps, RUNS))
        return { same: file }
      })
      const { quietMs, rereadMs } = yield* ask<RereadAnswer>(host, again)
      rereads.push(Math.max(0, rereadMs - quietMs))
    }
    const resting: Rest = { restMs: REST_MS }
    const { rssMib } = yield* ask<{ readonly rssMib: number }>(host, resting)
    return { ratios, warm, rereads, rssMib, busyRssMib }
  }).pipe(Effect.scoped)

export const bench: Bench = {
  about: `one changed app of ${MAX_SLOTS} and of ${SMALL} on the fake hypervisor: CPU from rename to report against a script that reads, hashes and parses the document and writes a report of that size, ${RUNS} runs`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the hosts", () => mkdtempSync(join(tmpdir(), "nibrunner-converge-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true }))
      )
      const daemon: Daemon = { file: yield* bundled(folder), ...(yield* launched) }
      const small = yield* measure(daemon, SMALL, join(folder, "small"), say)
      const scale = yield* measure(daemon, MAX_SLOTS, join(folder, "scale"), say)
      return {
        scale: { what: `CPU with ${MAX_SLOTS} apps ÷ the script`, values: scale.ratios, atMost: 2 },
        small: { what: `CPU with ${SMALL} apps ÷ the script`, values: small.ratios, atMost: 2 },
        scaleWork: {
          what: `CPU with ${MAX_SLOTS} apps ÷ the script's work without Node's start`,
          values: scale.warm
        },
        smallWork: {
          what: `CPU with ${SMALL} apps ÷ the script's work without Node's start`,
          values: small.warm
        },
        rereadMs: {
          what: `CPU of a look at the unchanged document of ${MAX_SLOTS} apps, ms`,
          values: scale.rereads,
          atMost: 50
        },
        rssMib: {
          what: `resident memory with ${MAX_SLOTS} apps, half a minute after the last change, MiB`,
          values: [scale.rssMib],
          atMost: 400
        },
        busyRssMib: {
          what: `resident memory with ${MAX_SLOTS} apps, the most after a change, MiB`,
          values: [scale.busyRssMib]
        }
      }
    })
}
