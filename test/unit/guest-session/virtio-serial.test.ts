import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Queue } from "effect"
import type { GuestEvent, GuestUsage } from "../../../src/services/Guest.ts"
import { HostType } from "../../../src/wire/records.ts"
import { bootSpec } from "../../support/boot-spec.ts"
import { recordedLog } from "../../support/log.ts"
import { begin, connect, expectKind, type HostConnection, scriptedGuest } from "./scripted.ts"

const output = (text: string): GuestEvent => ({
  kind: "output",
  stream: "stdout",
  bytes: new TextEncoder().encode(text)
})

const say = (connection: HostConnection, sequence: number, text: string) =>
  connection.send({ kind: "event", sequence, event: output(text) as never })

const textOf = (event: GuestEvent) =>
  event.kind === "output" ? new TextDecoder().decode(event.bytes) : event.kind

const acknowledgedUpTo = (connection: HostConnection, sequence: number) =>
  Effect.gen(function* () {
    while (connection.acknowledged() < sequence) yield* Effect.sleep(5)
  })

const usageOf = (n: number): GuestUsage => ({
  volumeTotalBytes: 100,
  volumeUsedBytes: n,
  memoryTotalBytes: 100,
  memoryUsedBytes: n,
  cpuTotalTicks: 100,
  cpuBusyTicks: n,
  receivedBytes: n,
  sentBytes: n
})

describe("a conversation over virtio-serial", () => {
  it.live("ignores what was written for an earlier connection, however it is cut", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const connecting = yield* Effect.forkChild(connect(guest.machine), { startImmediately: true })
      const first = yield* guest.accept
      // the rest of a record, and a whole one that only a host that was greeted may believe
      first.socket.write(new Uint8Array([0, 0, 1, 0, 0xc1, 0xff, 0xff]))
      say(first, 1, "old")
      yield* first.greet("running")
      say(first, 2, "new")
      const session = yield* Fiber.join(connecting)
      assert.strictEqual(textOf(yield* Queue.take(session.events)), "new")
    })
  )

  it.live("acknowledges an event when it was taken, and not before", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      for (const sequence of [1, 2, 3]) say(first, sequence, `${sequence}`)
      yield* Queue.take(session.events)
      yield* acknowledgedUpTo(first, 1)
      yield* Effect.sleep(100)
      assert.strictEqual(first.acknowledged(), 1)
      yield* Queue.take(session.events)
      yield* Queue.take(session.events)
      yield* acknowledgedUpTo(first, 3)
    })
  )

  it.live("acknowledges events of a type that it does not know, and tells nobody", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const unknown = (sequence: number) => {
        const bytes = new Uint8Array(13)
        const view = new DataView(bytes.buffer)
        view.setUint32(0, 8)
        view.setUint8(4, 0xef)
        view.setBigUint64(5, BigInt(sequence))
        first.socket.write(bytes)
      }
      unknown(1)
      yield* acknowledgedUpTo(first, 1)
      say(first, 2, "two")
      unknown(3)
      assert.strictEqual(textOf(yield* Queue.take(session.events)), "two")
      yield* acknowledgedUpTo(first, 3)
    })
  )

  it.live("connects again when the connection breaks, and tells no event twice", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest)
      say(first, 1, "one")
      say(first, 2, "two")
      assert.strictEqual(textOf(yield* Queue.take(session.events)), "one")
      first.socket.destroy()
      const second = yield* guest.accept
      yield* second.greet("running")
      for (const [sequence, text] of [
        [1, "one"],
        [2, "two"],
        [3, "three"]
      ] as const) {
        say(second, sequence, text)
      }
      assert.strictEqual(textOf(yield* Queue.take(session.events)), "two")
      assert.strictEqual(textOf(yield* Queue.take(session.events)), "three")
      yield* acknowledgedUpTo(second, 3)
    })
  )

  it.live("begins anew after bytes that are no record, and complains once", () => {
    const logs = recordedLog()
    return Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest)
      for (let round = 0, connection = first; round < 2; round++) {
        connection.socket.write(new Uint8Array([0xff, 0xff, 0xff, 0xff, 0xc1, 1, 2, 3]))
        connection = yield* guest.accept
        yield* connection.greet("running")
        say(connection, round + 1, `after ${round}`)
        assert.strictEqual(textOf(yield* Queue.take(session.events)), `after ${round}`)
      }
      const complaints = logs.lines.filter((line) => line.includes("web"))
      assert.strictEqual(complaints.length, 1)
      assert.include(complaints[0], "no guest says")
    }).pipe(Effect.provide(logs.layer))
  })

  it.live("stops reading a guest that floods it, and loses nothing of it", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const piece = "x".repeat(60_000)
      const count = 400
      for (let sequence = 1; sequence <= count; sequence++) say(first, sequence, piece)
      yield* Effect.sleep(300)
      // what was not read waits on the guest's side
      assert.isAbove(first.socket.writableLength, (count / 2) * piece.length)
      for (let taken = 0; taken < count; taken++) {
        assert.strictEqual(textOf(yield* Queue.take(session.events)).length, piece.length)
      }
      yield* acknowledgedUpTo(first, count)
    })
  )

  it.live("goes on listening to a guest that reads nothing, and acknowledges all once it does", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest)
      first.socket.pause()
      const count = 30_000
      const sending = yield* Effect.forkChild(
        Effect.gen(function* () {
          for (let sequence = 1; sequence <= count; sequence++) {
            say(first, sequence, "x")
            if (sequence % 500 === 0) yield* Effect.sleep(1)
          }
        })
      )
      for (let taken = 0; taken < count; taken++) yield* Queue.take(session.events)
      yield* Fiber.join(sending)
      first.socket.resume()
      yield* acknowledgedUpTo(first, count)
    })
  )

  it.live("gives each probe its own answer, in whatever order they come", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const probes = yield* Effect.forkChild(
        Effect.all([session.probe(1, 30_000), session.probe(2, 30_000), session.probe(3, 30_000)], {
          concurrency: "unbounded"
        }),
        { startImmediately: true }
      )
      const asked = [yield* first.next, yield* first.next, yield* first.next].map((record) =>
        expectKind(record, "probe")
      )
      for (const { id, port } of asked.reverse()) {
        const outcome = port === 1 ? "accepted" : port === 2 ? "refused" : "timed-out"
        first.send({ kind: "probe-result", id: id + 1000, outcome: "failed" })
        first.send({ kind: "probe-result", id, outcome })
      }
      assert.deepStrictEqual(yield* Fiber.join(probes), ["accepted", "refused", "timed-out"])
    })
  )

  it.live("gives each question for what is used its own answer, and none that names another", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const asking = yield* Effect.forkChild(
        Effect.all([session.usage(30_000), session.usage(30_000)], { concurrency: "unbounded" }),
        { startImmediately: true }
      )
      const ids = [yield* first.next, yield* first.next].map((record) => expectKind(record, "usage").id)
      for (const id of ids.toReversed()) {
        first.send({ kind: "usage-result", id: id + 1000, usage: usageOf(1) })
        first.send({ kind: "usage-result", id, usage: usageOf(id) })
      }
      assert.deepStrictEqual(yield* Fiber.join(asking), ids.map(usageOf))
    })
  )

  it.live("waits no longer for a guest to tell what it uses than it was told to", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const error = yield* Effect.flip(session.usage(50))
      assert.strictEqual(
        error.message,
        "the guest could not be asked to tell what it uses: it said nothing in 50 ms"
      )
      // the answer that comes late is nobody's
      const late = expectKind(yield* first.next, "usage")
      first.send({ kind: "usage-result", id: late.id, usage: usageOf(1) })
      const asking = yield* Effect.forkChild(session.usage(30_000), { startImmediately: true })
      const { id } = expectKind(yield* first.next, "usage")
      first.send({ kind: "usage-result", id, usage: usageOf(2) })
      assert.deepStrictEqual(yield* Fiber.join(asking), usageOf(2))
    })
  )

  it.live("believes no guest that uses more than it has: the conversation is begun anew", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest)
      const asking = yield* Effect.forkChild(Effect.flip(session.usage(30_000)), { startImmediately: true })
      const { id } = expectKind(yield* first.next, "usage")
      first.send({ kind: "usage-result", id, usage: { ...usageOf(1), memoryUsedBytes: 2 ** 40 } })
      assert.include((yield* Fiber.join(asking)).message, "more is used than there is")
      yield* (yield* guest.accept).greet("running")
    }).pipe(Effect.provide(recordedLog().layer))
  )

  it.live("asks PID 1 no more at once than it has room for", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const probes = yield* Effect.forkChild(
        Effect.forEach(Array.from({ length: 20 }), () => session.probe(80, 30_000), {
          concurrency: "unbounded"
        }),
        { startImmediately: true }
      )
      let open = 0
      let most = 0
      const answered: Array<number> = []
      while (answered.length < 20) {
        const next = yield* Effect.timeoutOption(first.next, 50)
        if (next._tag === "Some") {
          answered.push(expectKind(next.value, "probe").id)
          most = Math.max(most, ++open)
        } else {
          for (const id of answered.slice(-open)) first.send({ kind: "probe-result", id, outcome: "refused" })
          open = 0
        }
      }
      for (const id of answered.slice(-open)) first.send({ kind: "probe-result", id, outcome: "refused" })
      yield* Fiber.join(probes)
      assert.isAtMost(most, 8)
    })
  )

  it.live("hands the boot spec over once it is taken, and says why when it is not", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest, "awaiting-spec")
      const spec = bootSpec({ program: "/bin/app" })
      const refused = yield* Effect.forkChild(Effect.flip(session.handOver(spec)), { startImmediately: true })
      assert.deepStrictEqual(expectKind(yield* first.next, "boot-spec").spec, spec)
      first.send({ kind: "receipt", of: HostType.bootSpec, outcome: "not-understood" })
      assert.include((yield* Fiber.join(refused)).message, "did not understand")

      const taken = yield* Effect.forkChild(session.handOver(spec), { startImmediately: true })
      yield* first.next
      first.send({ kind: "receipt", of: HostType.bootSpec, outcome: "taken" })
      yield* Fiber.join(taken)
    })
  )

  it.live("hands the boot spec over again when the connection broke before it was taken", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest, "awaiting-spec")
      const handing = yield* Effect.forkChild(session.handOver(bootSpec()), { startImmediately: true })
      yield* first.next
      first.socket.destroy()
      const second = yield* guest.accept
      yield* second.greet("awaiting-spec")
      expectKind(yield* second.next, "boot-spec")
      second.send({ kind: "receipt", of: HostType.bootSpec, outcome: "taken" })
      yield* Fiber.join(handing)
    })
  )

  it.live("knows by the guest's phase that a boot spec was taken whose receipt was lost", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest, "awaiting-spec")
      const handing = yield* Effect.forkChild(session.handOver(bootSpec()), { startImmediately: true })
      yield* first.next
      first.socket.destroy()
      yield* (yield* guest.accept).greet("starting")
      yield* Fiber.join(handing)
    })
  )

  it.live("never says a value of the environment when the wire cannot carry it", () =>
    Effect.gen(function* () {
      const [session] = yield* begin(yield* scriptedGuest, "awaiting-spec")
      const error = yield* Effect.flip(
        session.handOver(bootSpec({ environment: [["TOKEN", "s3cret\0value"]] }))
      )
      assert.include(error.message, "TOKEN")
      assert.notInclude(error.message, "s3cret")
    })
  )

  it.live("fails the requests under way when the connection breaks", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const requests = yield* Effect.forkChild(
        Effect.all([Effect.flip(session.probe(80, 30_000)), Effect.flip(session.shutdown(1_000))], {
          concurrency: "unbounded"
        }),
        { startImmediately: true }
      )
      yield* first.next
      yield* first.next
      first.socket.destroy()
      for (const error of yield* Fiber.join(requests)) assert.include(error.message, "connection was closed")
    })
  )

  it.live("asks for a freeze with its lease, and waits until the guest says that it is frozen", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const freeze = yield* Effect.forkChild(session.freeze(30_000), { startImmediately: true })
      assert.deepStrictEqual(yield* first.next, { kind: "freeze", leaseMs: 30_000 })
      assert.isUndefined(freeze.pollUnsafe())
      first.send({ kind: "receipt", of: HostType.freeze, outcome: "taken" })
      yield* Fiber.join(freeze)
    })
  )

  it.live("says of a freeze that is refused, or that takes longer than its lease, that it failed", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const refused = yield* Effect.forkChild(Effect.flip(session.freeze(30_000)), { startImmediately: true })
      yield* first.next
      first.send({ kind: "receipt", of: HostType.freeze, outcome: "not-now" })
      assert.include(
        (yield* Fiber.join(refused)).message,
        "freeze its program: its program does not run or does not stand still"
      )
      const late = yield* Effect.flip(session.freeze(50))
      assert.include(late.message, "it said nothing in 50 ms")
    })
  )

  it.live("thaws with the host's time as it is when the guest is told", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest, "frozen")
      assert.strictEqual(session.phase, "frozen")
      first.socket.destroy()
      // asked while there is no connection: the time is not that of the question
      const thaw = yield* Effect.forkChild(session.thaw, { startImmediately: true })
      const second = yield* guest.accept
      const asked = Date.now()
      yield* Effect.sleep(100)
      yield* second.greet("frozen")
      const record = yield* second.next
      assert.strictEqual(record.kind, "thaw")
      assert.isAtLeast(record.kind === "thaw" ? record.hostTime : 0, asked + 90)
      second.send({ kind: "receipt", of: HostType.thaw, outcome: "taken" })
      yield* Fiber.join(thaw)
    })
  )

  it.live("reads to the end what a VMM had said before it ended", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest)
      for (let sequence = 1; sequence <= 100; sequence++) say(first, sequence, `${sequence}`)
      first.send({ kind: "event", sequence: 101, event: { kind: "failed", reason: "no more" } })
      yield* guest.end({ kind: "exited", code: 0 })
      const seen: Array<string> = []
      yield* Effect.forever(
        Effect.map(Queue.take(session.events), (event) => {
          seen.push(textOf(event))
        })
      ).pipe(Effect.ignore)
      assert.strictEqual(seen.length, 101)
      assert.strictEqual(seen.at(-1), "failed")
    })
  )

  it.live("hangs up with its scope, so that the next daemon can connect", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      yield* Effect.scoped(
        Effect.gen(function* () {
          const [, first] = yield* begin(guest)
          first.socket.on("close", () => undefined)
        })
      )
      const [session] = yield* begin(guest, "backing-off")
      assert.strictEqual(session.phase, "backing-off")
    })
  )
})
