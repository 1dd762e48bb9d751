/**
 * From a document to an app that answers, against the least that boots the same microVM.
 *
 * Ours: the document is written with `running` in place of `stopped`; the time ends with the first 200 through the
 * proxy. The other: `support/bare-qemu.ts`, from the start of QEMU to the first 200 at the forwarded port. Both
 * boot the same kernel, initramfs, base, layer and volume, one after the other, and are polled alike.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Clock, Effect } from "effect"
import { type Hello, prepareHello } from "../scripts/local/hello.ts"
import {
  freePort,
  guestImage,
  type LocalHost,
  layOut,
  startDaemon,
  writeDocument
} from "../scripts/local/host.ts"
import { attempt, Problem } from "../scripts/local/problem.ts"
import { awaitReport, instanceOf, readReport } from "../scripts/local/report.ts"
import { environment } from "../src/reconcile/boot-spec.ts"
import { type BareMachine, bootBare, measureTsc } from "./support/bare-qemu.ts"
import type { Bench } from "./support/bench.ts"
import { firstAnswer } from "./support/first-answer.ts"

const PAIRS = 9
const LIMIT_MS = 120_000

/** The arguments of the QEMU that runs this host's microVM. */
const runningQemu = (host: LocalHost) =>
  attempt("the microVM's QEMU cannot be found", () => {
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/u.test(name))) {
      try {
        const words = readFileSync(join("/proc", pid, "cmdline"), "utf8").split("\0")
        if (words.includes("-kernel") && words.some((word) => word.includes(`${host.runtime}/`))) return words
      } catch {
        // it ended while we looked
      }
    }
    throw new Error("no process has the host's folder in its command line")
  })

/** The files behind the drives of that QEMU, in their order. */
const drivesOf = (words: ReadonlyArray<string>): ReadonlyArray<string> =>
  words.flatMap((word, index) => (words[index - 1] === "-blockdev" ? [JSON.parse(word).file.filename] : []))

const deploy = (host: LocalHost, hello: Hello) =>
  Effect.gen(function* () {
    yield* writeDocument(host, hello.document("running"))
    const written = performance.now()
    const target = { who: "the host", port: host.proxyPort, path: hello.healthPath, hostname: hello.hostname }
    const answered = yield* firstAnswer(target, LIMIT_MS).pipe(
      Effect.catchTag("Problem", (problem) =>
        Effect.flatMap(readReport(host), (report) => {
          const { state, message } = instanceOf(report, hello.appId) ?? {}
          return new Problem({
            message: `${problem.message}: the app is ${state}, ${message ?? "without a reason"}`
          })
        })
      )
    )
    return answered - written
  })

const stop = (host: LocalHost, hello: Hello) =>
  Effect.gen(function* () {
    const since = yield* Clock.currentTimeMillis
    yield* writeDocument(host, hello.document("stopped"))
    yield* awaitReport(host, "the stop", since, (report) =>
      instanceOf(report, hello.appId)?.state === "stopped" ? true : undefined
    )
  })

const bare = (machine: BareMachine, tscKhz: string, path: string) =>
  Effect.acquireUseRelease(
    Effect.sync(() => ({ started: performance.now(), run: bootBare(machine, tscKhz) })),
    ({ started, run }) =>
      firstAnswer({ who: "bare QEMU", port: machine.hostPort, path, hostname: "bare" }, LIMIT_MS).pipe(
        Effect.map((answered) => answered - started),
        Effect.mapError(({ message }) => new Problem({ message: `${message}: ${run.progress()}` }))
      ),
    ({ run }) => Effect.promise(run.end)
  )

export const bench: Bench = {
  about: `from the document to the first answer through the proxy, against bare QEMU; ${PAIRS} pairs`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the host", () => mkdtempSync(join(tmpdir(), "nibrunner-boot-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true }))
      )
      const host = yield* layOut(folder, { maxApps: 1, proxyPort: yield* freePort(0) })
      const hello = yield* prepareHello(host)
      const [instance] = hello.document("running").instances
      if (!instance) return yield* new Problem({ message: "the example names no app" })
      const since = yield* Clock.currentTimeMillis
      const daemon = yield* startDaemon(host)
      yield* awaitReport(host, "the daemon's start", since, () => true).pipe(Effect.raceFirst(daemon.ended))
      yield* Effect.addFinalizer(() => Effect.ignore(stop(host, hello).pipe(Effect.timeout("1 minute"))))

      // the first boot makes the volume and the layer, and warms the machine's caches
      yield* say(`first boot, not counted: ${(yield* deploy(host, hello)).toFixed(0)} ms`)
      const qemu = yield* runningQemu(host)
      yield* stop(host, hello)
      const machine: BareMachine = {
        qemu: qemu[0] ?? "",
        kvm: qemu.some((word) => word.includes("accel=kvm")),
        kernel: qemu[qemu.indexOf("-kernel") + 1] ?? "",
        initramfs: qemu[qemu.indexOf("-initrd") + 1] ?? "",
        tscProbe: join(guestImage, "tsc-khz"),
        drives: drivesOf(qemu),
        memoryMib: instance.config.resources.memoryMib,
        vcpuCount: instance.config.resources.vcpuCount,
        guestPort: instance.config.httpPort,
        hostPort: yield* freePort(0),
        spec: {
          hostname: instance.appId,
          layerCount: instance.layers.length,
          program: instance.config.command.program,
          args: instance.config.command.args,
          workingDirectory: instance.config.command.workingDirectory,
          environment: environment(instance),
          restartPolicy: instance.config.restartPolicy
        }
      }
      const tscKhz = yield* attempt("the TSC cannot be measured", () => measureTsc(machine))
      const ours = Effect.tap(deploy(host, hello), () => stop(host, hello))
      const theirs = bare(machine, tscKhz, hello.healthPath)

      const ratios: Array<number> = []
      for (let pair = 1; pair <= PAIRS; pair++) {
        // each goes first every other time
        const [mine, other] =
          pair % 2 === 1
            ? [yield* ours, yield* theirs]
            : yield* Effect.map(Effect.all([theirs, ours]), ([b, a]) => [a, b] as const)
        ratios.push(mine / other)
        yield* say(
          `pair ${pair}: ours ${mine.toFixed(0)} ms, bare QEMU ${other.toFixed(0)} ms, ratio ${(mine / other).toFixed(3)}`
        )
      }
      return { total: { what: "ours ÷ bare QEMU", values: ratios, atMost: 1.15 } }
    })
}
