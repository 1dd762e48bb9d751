/**
 * The demo: a whole host in one folder of the checkout, one example app on it, and what became of it.
 *
 *     npm run demo               shows it live; Ctrl-C ends it
 *     npm run demo -- --once     ends by itself after the app has answered, slept, woken and been stopped
 *     npm run demo -- --folder PATH     keeps the host there instead of in `.nibrunner/demo`
 *
 * The host is driven as every host is: by its document, and read by its report.
 */
import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { get } from "node:http"
import { createServer } from "node:net"
import { join, resolve } from "node:path"
import { parseArgs } from "node:util"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Clock, Effect, Exit, Fiber, type Runtime } from "effect"
import type { InstanceReport } from "../src/report/schema.ts"
import { followLog } from "./demo/follow.ts"
import { endLeftovers } from "./demo/leftovers.ts"
import { snapshotSize, vmmMemory } from "./demo/memory.ts"
import * as View from "./demo/view.ts"
import { type Hello, prepareHello } from "./local/hello.ts"
import * as Host from "./local/host.ts"
import { attempt, Problem, tool } from "./local/problem.ts"
import { awaitReport, instanceOf } from "./local/report.ts"
import { sleepNow } from "./local/sleep.ts"

const usage = "usage: npm run demo [-- [--once] [--folder PATH]]"

const { once, folder } = (() => {
  try {
    const { values } = parseArgs({ options: { once: { type: "boolean" }, folder: { type: "string" } } })
    return {
      once: values.once === true,
      folder: resolve(values.folder ?? join(Host.checkout, ".nibrunner/demo"))
    }
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n${usage}\n`)
    process.exit(2)
  }
})()

const PREFERRED_PORT = 8080
const MAX_APPS = 4

/** Two demos in one folder would fight over it. The name is freed by the kernel, however this one ends. */
const onlyDemo = Effect.acquireRelease(
  Effect.callback<ReturnType<typeof createServer>, Problem>((resume) => {
    const server = createServer()
    server.once("error", () => resume(new Problem({ message: `another demo is running in ${folder}` })))
    server.listen(`\0nibrunner-demo:${createHash("sha256").update(folder).digest("hex").slice(0, 32)}`, () =>
      resume(Effect.succeed(server))
    )
  }),
  (server) => Effect.sync(() => void server.close())
)

const guestImage = View.step(
  "image",
  (note) =>
    tool(process.execPath, [join(Host.checkout, "guest/image/build.ts")], note).pipe(
      Effect.andThen(
        attempt("the guest image has no manifest", () =>
          JSON.parse(readFileSync(join(Host.guestImage, "manifest.json"), "utf8"))
        )
      )
    ),
  (manifest) => `Debian ${manifest.debianVersion}, Linux ${manifest.kernelVersion}`
)

interface Answer {
  readonly status: number
  readonly body: string
}

/** Fetches the app's page through the proxy, by its hostname, as the `curl` line does. */
const fetchPage = (host: Host.LocalHost, hello: Hello): Effect.Effect<Answer, Problem> =>
  Effect.callback<Answer, Problem>((resume) => {
    const fail = (error: Error) =>
      resume(new Problem({ message: `the page could not be fetched: ${error.message}` }))
    const request = get(
      { host: "127.0.0.1", port: host.proxyPort, path: "/", headers: { host: hello.hostname }, agent: false },
      (response) => {
        const chunks: Array<Buffer> = []
        response.on("data", (chunk: Buffer) => chunks.push(chunk))
        response.on("error", fail)
        response.on("end", () =>
          resume(
            Effect.succeed({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString("utf8") })
          )
        )
      }
    ).on("error", fail)
    return Effect.sync(() => request.destroy())
  }).pipe(
    Effect.timeoutOrElse({
      duration: "30 seconds",
      orElse: () => new Problem({ message: "the page could not be fetched: no answer within 30 s" })
    }),
    Effect.filterOrFail(
      ({ status }) => status === 200,
      ({ status, body }) => new Problem({ message: `the app answered ${status}: ${body.trim()}` })
    )
  )

/** Writes the document and waits, step by step, until the app answers; gives its page. */
const deploy = (host: Host.LocalHost, hello: Hello) =>
  Effect.gen(function* () {
    const since = yield* Clock.currentTimeMillis
    const failed = (message: string | undefined, what: string) =>
      new Problem({ message: `${what}: ${message ?? "the report gives no reason"}` })

    yield* View.step(
      "document",
      () =>
        Effect.gen(function* () {
          const digest = yield* Host.writeDocument(host, hello.document("running"))
          yield* awaitReport(host, "the document", since, (report) =>
            report.acceptedDigest === digest
              ? report
              : report.message?.includes(" is refused: ") === true
                ? failed(report.message, "the document was refused")
                : undefined
          )
        }),
      () => "desired.json accepted"
    )
    yield* View.step(
      "volume",
      () =>
        awaitReport(host, "the volume", since, (report) => {
          const volume = report.volumes.find(({ volumeId }) => volumeId === hello.volumeId)
          return volume?.state === "failed"
            ? failed(volume.message, "the volume failed")
            : volume?.state === "ready"
              ? volume
              : undefined
        }),
      (volume) => `${volume.volumeId}, ${volume.sizeBytes / 1024 / 1024} MiB`
    )
    const untilInstance = (what: string, reached: (instance: InstanceReport) => boolean) =>
      awaitReport(host, what, since, (report) => {
        const instance = instanceOf(report, hello.appId)
        if (instance?.state === "failed") return failed(instance.message, "the app failed")
        return instance !== undefined && reached(instance) ? instance : undefined
      })
    yield* View.step(
      "boot",
      () => untilInstance("the boot", ({ startedAt }) => startedAt !== undefined),
      ({ guestIpv4 }) => `the microVM is up as ${guestIpv4}`
    )
    yield* View.step(
      "health",
      () => untilInstance("the app's health", ({ state }) => state === "running"),
      () => `GET ${hello.healthPath} answers`
    )
    return yield* View.step(
      "answer",
      () => fetchPage(host, hello),
      ({ status }) => `${status} through the proxy`
    )
  })

/** Puts the app to sleep, and shows that its memory is given back. */
const sleep = (host: Host.LocalHost, hello: Hello) =>
  View.step(
    "sleep",
    () =>
      Effect.gen(function* () {
        const asked = yield* Clock.currentTimeMillis
        // Only what is on-request sleeps; what is up stays up when its document says so.
        const digest = yield* Host.writeDocument(host, hello.document("on-request"))
        yield* awaitReport(host, "the document", asked, (report) =>
          report.acceptedDigest === digest ? report : undefined
        )
        const before = yield* vmmMemory(host)
        const since = yield* Clock.currentTimeMillis
        yield* sleepNow(host, hello.appId)
        const ms = (yield* Clock.currentTimeMillis) - since
        return { ms, before, after: yield* vmmMemory(host), disk: yield* snapshotSize(host, hello.appId) }
      }),
    ({ ms, before, after, disk }) =>
      `asleep in ${ms} ms: ${before} MiB of memory are now ${after}, and ${disk} MiB on the disk`
  )

/** Asks for the page of the app that sleeps. */
const wake = (host: Host.LocalHost, hello: Hello) =>
  View.step(
    "wake",
    () =>
      Effect.gen(function* () {
        const since = yield* Clock.currentTimeMillis
        const answer = yield* fetchPage(host, hello)
        return { ...answer, ms: (yield* Clock.currentTimeMillis) - since }
      }),
    ({ status, ms }) => `${status} after ${ms} ms, from the memory that it fell asleep with`
  )

/** Asks for `stopped` in the document and waits until the report says so. */
const stop = (host: Host.LocalHost, hello: Hello) =>
  View.step(
    "stop",
    () =>
      Effect.gen(function* () {
        const since = yield* Clock.currentTimeMillis
        yield* Host.writeDocument(host, hello.document("stopped"))
        yield* awaitReport(
          host,
          "the stop",
          since,
          (report) => (instanceOf(report, hello.appId)?.state === "stopped" ? report : undefined),
          "45 seconds"
        )
      }),
    () => "the app is stopped; its volume is kept"
  )

const demo = Effect.gen(function* () {
  yield* View.title("nibrunner: one app in a microVM of its own")
  yield* onlyDemo
  yield* guestImage
  const host = yield* Host.layOut(folder, {
    maxApps: MAX_APPS,
    proxyPort: yield* Host.freePort(PREFERRED_PORT)
  })
  const hello = yield* View.step(
    "example",
    () => prepareHello(host),
    () => "examples/hello, compiled and in the store"
  )

  // last to be released: whatever could not be ended in order is ended here
  yield* Effect.addFinalizer(() =>
    endLeftovers(host).pipe(
      Effect.flatMap((pids) =>
        pids.length === 0 ? Effect.void : View.failure(`had to end by force: ${pids.join(", ")}`)
      ),
      Effect.catchTag("Problem", (problem) => View.failure(problem.message))
    )
  )
  const started = yield* Clock.currentTimeMillis
  const daemon = yield* View.step(
    "daemon",
    () =>
      Effect.gen(function* () {
        const daemon = yield* Host.startDaemon(host)
        yield* awaitReport(host, "the daemon's start", started, (report) => report).pipe(
          Effect.raceFirst(daemon.ended)
        )
        return daemon
      }),
    ({ pid }) => `pid ${pid}, proxy on 127.0.0.1:${host.proxyPort}`
  )

  // from here on the app is stopped in order, however the demo ends
  yield* Effect.gen(function* () {
    const answer = yield* deploy(host, hello)
    const command = `curl -H 'Host: ${hello.hostname}' http://127.0.0.1:${host.proxyPort}/`
    yield* View.page(command, `HTTP ${answer.status}`, answer.body)
    yield* sleep(host, hello)
    const woken = yield* wake(host, hello)
    yield* View.page(command, `HTTP ${woken.status}`, woken.body)
    if (once) return
    yield* View.hint(`In a browser: http://${hello.hostname}:${host.proxyPort}/`)
    yield* View.hint(`The host's files: ${folder}`)
    yield* View.hint("Ctrl-C ends it. What the app says:\n")
    return yield* followLog(join(host.logs, `${hello.appId}.log`), started, View.appLine)
  }).pipe(
    Effect.raceFirst(daemon.ended),
    Effect.onExit((exit) =>
      Effect.gen(function* () {
        if (Exit.isFailure(exit)) yield* View.line()
        // a fiber of its own, since an interrupted one cannot wait with a time limit
        const stopping = yield* Effect.forkDetach(stop(host, hello).pipe(Effect.raceFirst(daemon.ended)))
        yield* Fiber.join(stopping)
      })
    )
  )
}).pipe(Effect.scoped)

/** What went wrong, each thing once: an end of the daemon, say, also fails the stop that follows. */
const sentences = (cause: Cause.Cause<Problem>): ReadonlySet<string> =>
  new Set(
    cause.reasons
      .filter((reason) => reason._tag !== "Interrupt")
      .map((reason) =>
        reason._tag === "Fail" ? reason.error.message : Cause.pretty(Cause.fromReasons([reason]))
      )
  )

/** Ctrl-C is how the demo is meant to end, so it is no failure. */
const teardown: Runtime.Teardown = (exit, onExit) =>
  onExit(Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause) ? 0 : 1)

// a closed terminal ends the demo like Ctrl-C
process.once("SIGHUP", () => process.kill(process.pid, "SIGTERM"))

demo.pipe(
  Effect.tapCause((cause) =>
    Cause.hasInterruptsOnly(cause)
      ? Effect.void
      : Effect.forEach(sentences(cause), View.failure, { discard: true })
  ),
  Effect.provide(NodeServices.layer),
  (program) => NodeRuntime.runMain(program, { disableErrorReporting: true, teardown })
)
