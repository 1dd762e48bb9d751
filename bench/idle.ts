/**
 * What a daemon costs that has nothing to do: resident memory and CPU with 1,000 stopped apps.
 *
 * Each run is a minute, so that it holds everything that a quiet daemon does by itself: two looks at the document
 * and a report at least.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Clock, Effect } from "effect"
import { type Hello, prepareHello } from "../scripts/local/hello.ts"
import { freePort, layOut, startDaemon, writeDocument } from "../scripts/local/host.ts"
import { attempt, Problem } from "../scripts/local/problem.ts"
import { awaitReport } from "../scripts/local/report.ts"
import type { HostDesiredState } from "../src/document/schema.ts"
import type { Bench } from "./support/bench.ts"

const APPS = 1_000
const RUNS = 3
const RUN_MS = 60_000
const SMALLEST_VOLUME = 16 * 1024 * 1024
/** `_SC_CLK_TCK`, which is 100 on every Linux: the unit of the times in /proc/PID/stat. */
const TICKS_PER_SECOND = 100

/** The example's document, so many times over, all of it stopped. */
const stoppedApps = (hello: Hello, count: number): unknown => {
  const { volumes, instances, ...rest }: HostDesiredState = hello.document("stopped")
  const numbers = Array.from({ length: count }, (_, index) => index)
  return {
    ...rest,
    volumes: numbers.flatMap((n) =>
      volumes.map((volume) => ({
        ...volume,
        volumeId: `volume-${n}`,
        appId: `app-${n}`,
        sizeBytes: SMALLEST_VOLUME
      }))
    ),
    instances: numbers.flatMap((n) =>
      instances.map((instance) => ({
        ...instance,
        volumeId: `volume-${n}`,
        appId: `app-${n}`,
        hostnames: [{ hostname: `app-${n}.localhost`, kind: "platform" }]
      }))
    )
  }
}

/** CPU time that a process has used, in seconds. */
const cpuSeconds = (pid: number) =>
  attempt(`process ${pid} cannot be looked at`, () => {
    // the name, second, may hold spaces and brackets: the fields are counted from behind it
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND
  })

const residentMib = (pid: number) =>
  attempt(`process ${pid} cannot be looked at`, () => {
    const [, kib] = /^VmRSS:\s+(\d+) kB$/mu.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? []
    return Number(kib) / 1024
  })

export const bench: Bench = {
  about: `a daemon with ${APPS} stopped apps, over ${RUNS} runs of ${RUN_MS / 1000} s`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the host", () => mkdtempSync(join(tmpdir(), "nibrunner-idle-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true }))
      )
      const host = yield* layOut(folder, { maxApps: APPS, proxyPort: yield* freePort(0) })
      const hello = yield* prepareHello(host)
      const since = yield* Clock.currentTimeMillis
      yield* writeDocument(host, stoppedApps(hello, APPS))
      const daemon = yield* startDaemon(host)
      yield* awaitReport(
        host,
        `${APPS} stopped apps`,
        since,
        ({ instances, volumes }) => {
          const failed = [...instances, ...volumes].find(({ state }) => state === "failed")
          if (failed) return new Problem({ message: `${failed.appId} failed: ${failed.message}` })
          const settled =
            instances.length === APPS &&
            instances.every(({ state }) => state === "stopped") &&
            volumes.length === APPS &&
            volumes.every(({ state }) => state === "ready" || state === "detached")
          return settled ? true : undefined
        },
        "10 minutes"
      ).pipe(Effect.raceFirst(daemon.ended))
      yield* say(`settled after ${(((yield* Clock.currentTimeMillis) - since) / 1000).toFixed(1)} s`)

      const rssMib: Array<number> = []
      const cpuPercent: Array<number> = []
      for (let run = 1; run <= RUNS; run++) {
        const before = yield* cpuSeconds(daemon.pid)
        yield* Effect.sleep(RUN_MS).pipe(Effect.raceFirst(daemon.ended))
        const cpu = (((yield* cpuSeconds(daemon.pid)) - before) / (RUN_MS / 1000)) * 100
        const rss = yield* residentMib(daemon.pid)
        yield* say(`run ${run}: ${rss.toFixed(0)} MiB resident, ${cpu.toFixed(2)} % of a core`)
        rssMib.push(rss)
        cpuPercent.push(cpu)
      }
      return {
        rssMib: { what: "resident memory in MiB", values: rssMib, atMost: 200 },
        cpuPercent: { what: "CPU in % of a core", values: cpuPercent, atMost: 1 }
      }
    })
}
