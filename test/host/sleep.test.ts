/** Apps that sleep and wake, on real microVMs, through the proxy and the raw ports. */
import { createSocket } from "node:dgram"
import { closeSync, openSync, readdirSync, readFileSync, readSync, writeSync } from "node:fs"
import { get } from "node:http"
import { connect } from "node:net"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Clock, Effect, Fiber, Schedule } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"
import { sleepNow } from "../../scripts/local/sleep.ts"
import {
  awaitListening,
  awaitState,
  bodyOf,
  type Changes,
  documentOf,
  instance,
  put,
  runDaemon,
  snapshotsIn,
  startHost,
  vmmsOf
} from "./harness.ts"

const never = { sleepWhen: { kind: "never" } }

/** A host with one on-request app that has counted to 1 and holds a file. */
const deployed = Effect.fnUntraced(function* (changes: Changes = {}, rawPorts?: number) {
  const { host, tenant, daemon } = yield* startHost(rawPorts === undefined ? {} : { rawPorts })
  const of = (more: Changes) =>
    documentOf(
      instance("app-1", tenant, { desiredState: "on-request", activation: never, ...changes, ...more })
    )
  yield* put(host, of({}))
  const report = yield* awaitState(host, "app-1", "running")
  assert.strictEqual(yield* bodyOf(host, "/remember"), "200 1")
  assert.strictEqual(yield* bodyOf(host, "/write?path=note&body=kept"), "200 written")
  return { host, daemon, of, report }
})

const snapshotFiles = (host: LocalHost) => readdirSync(join(host.snapshots, "app-1"))

/** Flips one bit in the middle of what is stored in a file. */
const flip = (path: string) => {
  const file = openSync(path, "r+")
  const byte = Buffer.alloc(1)
  // The first byte of the file is stored in any case: a hole would be read back as nothing that was written.
  readSync(file, byte, 0, 1, 0)
  byte[0] = (byte[0] ?? 0) ^ 1
  writeSync(file, byte, 0, 1, 0)
  closeSync(file)
}

const echoTcp = (port: number, text: string) =>
  Effect.callback<string, Error>((resume) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(text))
    socket.on("data", (bytes) => {
      socket.destroy()
      resume(Effect.succeed(bytes.toString()))
    })
    socket.on("error", (error) => resume(Effect.fail(error)))
    socket.on("close", () => resume(Effect.fail(new Error("closed without an answer"))))
    return Effect.sync(() => socket.destroy())
  }).pipe(Effect.timeout("60 seconds"))

const echoUdp = (port: number, text: string) =>
  Effect.callback<string, Error>((resume) => {
    const socket = createSocket("udp4")
    socket.on("message", (bytes) => {
      socket.close()
      resume(Effect.succeed(bytes.toString()))
    })
    socket.on("error", (error) => resume(Effect.fail(error)))
    socket.send(text, port, "127.0.0.1")
  }).pipe(Effect.timeout("60 seconds"))

/** Where QEMU listens for the app's port. */
const forwarded = (host: LocalHost) => {
  const [pid] = vmmsOf(host)
  const [, address, port] =
    /hostfwd=tcp:([\d.]+):(\d+)-/u.exec(readFileSync(`/proc/${pid}/cmdline`, "utf8")) ?? []
  return { host: address, port: Number(port) }
}

/** A connection from this port of the host, for one request; the program closes it. Gives the milliseconds it took. */
const askedFrom = (localPort: number, to: ReturnType<typeof forwarded>) =>
  Effect.callback<number, Error>((resume) => {
    const began = performance.now()
    const options = { ...to, path: "/healthz", localPort, agent: false, headers: { connection: "close" } }
    const request = get(options, (response) => {
      response.resume()
      response.on("close", () => resume(Effect.succeed(performance.now() - began)))
    })
    request.on("error", (error) => resume(Effect.fail(error)))
    return Effect.sync(() => request.destroy())
  }).pipe(Effect.timeout("60 seconds"))

/** Waits until the program has a connection from outside: a line of its kernel says so. */
const awaitOpen = (host: LocalHost) =>
  Effect.repeat(
    Effect.map(bodyOf(host, "/hanging"), (answer) => answer),
    { until: (answer) => answer === "200 1", schedule: Schedule.spaced("50 millis") }
  )

layer(NodeServices.layer, { excludeTestServices: true })("an app that sleeps", (it) => {
  it.effect(
    "holds no memory, wakes with what it had in memory, and its clock is right, three times over",
    () =>
      Effect.gen(function* () {
        const { host } = yield* deployed()
        for (let round = 2; round <= 4; round++) {
          yield* sleepNow(host, "app-1")
          yield* awaitState(host, "app-1", "idle")
          assert.deepStrictEqual(vmmsOf(host), [])
          assert.isAbove(snapshotFiles(host).length, 0)
          assert.strictEqual(yield* bodyOf(host, "/remember"), `200 ${round}`)
          const guest = Number((yield* bodyOf(host, "/time")).slice(4))
          assert.isBelow(Math.abs(guest - (yield* Clock.currentTimeMillis)), 1_000)
          assert.deepStrictEqual(snapshotsIn(host), [])
        }
        assert.strictEqual(yield* bodyOf(host, "/read?path=note"), "200 kept")
        assert.strictEqual((yield* awaitState(host, "app-1", "running")).restartCount, 0)
      })
  )

  it.effect("is restored once for 32 callers at once, and answers each, in its own order", () =>
    Effect.gen(function* () {
      const { host } = yield* deployed()
      yield* sleepNow(host, "app-1")
      const answers = yield* Effect.all(
        Array.from({ length: 32 }, () => bodyOf(host, "/remember")),
        { concurrency: "unbounded" }
      )
      const counts = answers.map((answer) => Number(answer.replace(/^200 /u, ""))).sort((a, b) => a - b)
      assert.deepStrictEqual(
        counts,
        Array.from({ length: 32 }, (_, index) => index + 2)
      )
      assert.strictEqual(vmmsOf(host).length, 1)
    })
  )

  for (const file of ["state", "memory", "memory.sums", "record"]) {
    it.effect(`is booted when a bit of the file ${file} of its snapshot is wrong; its volume is whole`, () =>
      Effect.gen(function* () {
        const { host } = yield* deployed()
        yield* sleepNow(host, "app-1")
        assert.deepStrictEqual(snapshotFiles(host).sort(), ["memory", "memory.sums", "record", "state"])
        flip(join(host.snapshots, "app-1", file))
        assert.strictEqual(yield* bodyOf(host, "/remember"), "200 1")
        assert.strictEqual(yield* bodyOf(host, "/read?path=note"), "200 kept")
        assert.deepStrictEqual(snapshotsIn(host), [])
      })
    )
  }

  it.effect("keeps its memory through the end of the daemon, and through its death", () =>
    Effect.gen(function* () {
      const { host, daemon } = yield* deployed()
      yield* sleepNow(host, "app-1")
      yield* daemon.stop
      const second = yield* runDaemon(host)
      yield* awaitListening(host)
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 2")
      yield* sleepNow(host, "app-1")
      yield* second.kill
      yield* runDaemon(host)
      yield* awaitListening(host)
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 3")
    })
  )

  it.effect("is replaced by a new release as itself, whose memory is its own from then on", () =>
    Effect.gen(function* () {
      const { host, of } = yield* deployed()
      yield* sleepNow(host, "app-1")
      yield* put(host, of({ deploymentId: "dep-2" }))
      yield* awaitState(host, "app-1", "running")
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 1")
      yield* sleepNow(host, "app-1")
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 2")
      assert.strictEqual(yield* bodyOf(host, "/read?path=note"), "200 kept")
    })
  )

  it.effect("is woken by a connection and by a datagram, which reach it", () =>
    Effect.gen(function* () {
      const { host, report } = yield* deployed(
        {
          args: ["--raw-tcp", "4000", "--raw-udp", "4001"],
          ports: [
            { name: "echo", guestPort: 4000 },
            { name: "beat", guestPort: 4001 }
          ]
        },
        7
      )
      const port = report.hostPort ?? 0
      yield* sleepNow(host, "app-1")
      assert.strictEqual(yield* echoTcp(port + 1, "sent before it woke"), "sent before it woke")
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 2")
      yield* sleepNow(host, "app-1")
      assert.strictEqual(yield* echoUdp(port + 2, "one datagram"), "one datagram")
      assert.strictEqual(yield* echoUdp(port + 2, "and the next"), "and the next")
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 3")
    })
  )

  it.effect("takes a connection from a port that called it in an earlier life", () =>
    Effect.gen(function* () {
      const { host } = yield* deployed()
      for (let life = 0; life < 3; life++) {
        // The user network tries again after 6 s what its guest has turned away.
        assert.isBelow(yield* askedFrom(45_678, forwarded(host)), 5_000, `life ${life}`)
        yield* sleepNow(host, "app-1")
        yield* bodyOf(host, "/remember")
      }
    })
  )

  it.effect("is stopped in order once it is awake again", () =>
    Effect.gen(function* () {
      const { host, of } = yield* deployed()
      yield* sleepNow(host, "app-1")
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 2")
      yield* put(host, of({ desiredState: "stopped" }))
      yield* awaitState(host, "app-1", "stopped")
      assert.notMatch(readFileSync(host.log, "utf8"), /did not power off in time/u)
    })
  )

  it.effect("is not put to sleep while a request is open, and the command line says why", () =>
    Effect.gen(function* () {
      const { host } = yield* deployed()
      const open = yield* Effect.forkChild(bodyOf(host, "/hang?ms=4000"), { startImmediately: true })
      yield* awaitOpen(host)
      const answer = yield* Effect.flip(sleepNow(host, "app-1"))
      assert.match(answer.message, /something is open/u)
      assert.strictEqual(yield* Fiber.join(open), "200 waited")
      yield* sleepNow(host, "app-1")
    })
  )
})
