import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Queue } from "effect"
import fc from "fast-check"
import type { DatagramPath } from "../../../src/services/Proxy.ts"
import { HostType } from "../../../src/wire/records.ts"
import { recordedLog } from "../../support/log.ts"
import { begin, expectKind, scriptedGuest } from "./scripted.ts"

const bytesOf = (text: string) => new TextEncoder().encode(text)
const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes)

/** A client: what it sends, and what comes back to it. */
const client = (path: DatagramPath, port: number) => {
  const replies = Effect.runSync(Queue.unbounded<string>())
  const session = path.open(port, (bytes) => {
    Queue.offerUnsafe(replies, textOf(bytes))
  })
  return {
    send: (text: string) => session.send(bytesOf(text)),
    close: session.close,
    replies,
    reply: Queue.take(replies)
  }
}

describe("datagrams over virtio-serial", () => {
  it.live(
    "of each client go under a number of its own, and what comes back under it goes to that client",
    () =>
      Effect.gen(function* () {
        const [session, first] = yield* begin(yield* scriptedGuest)
        const clients = [
          client(session.datagrams, 53),
          client(session.datagrams, 53),
          client(session.datagrams, 7)
        ]
        const flows: Array<number> = []
        for (const [index, each] of clients.entries()) {
          each.send(`to ${index}`)
          const { flow, port, bytes } = expectKind(yield* first.next, "datagram")
          assert.strictEqual(port, [53, 53, 7][index])
          assert.strictEqual(textOf(bytes), `to ${index}`)
          flows.push(flow)
        }
        assert.strictEqual(new Set(flows).size, 3)
        for (const index of [2, 0, 1]) {
          first.send({ kind: "reply", flow: flows[index] ?? 0, bytes: bytesOf(`for ${index}`) })
        }
        for (const [index, each] of clients.entries()) assert.strictEqual(yield* each.reply, `for ${index}`)
      })
  )

  it.live("end with their client: the guest is told, and nothing goes either way any more", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const [gone, stays] = [client(session.datagrams, 53), client(session.datagrams, 53)]
      gone.send("hello")
      const { flow } = expectKind(yield* first.next, "datagram")
      gone.close()
      gone.close()
      assert.deepStrictEqual(yield* first.next, { kind: "close-flow", flow })
      gone.send("too late")
      stays.send("hello")
      const other = expectKind(yield* first.next, "datagram")
      assert.strictEqual(textOf(other.bytes), "hello")
      first.send({ kind: "reply", flow, bytes: bytesOf("too late") })
      first.send({ kind: "reply", flow: 999, bytes: bytesOf("to nobody") })
      first.send({ kind: "reply", flow: other.flow, bytes: bytesOf("in time") })
      assert.strictEqual(yield* stays.reply, "in time")
      assert.strictEqual(Queue.sizeUnsafe(gone.replies), 0)
    })
  )

  it.live("of a client that has sent nothing cost the guest nothing", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      for (let count = 0; count < 100; count++) client(session.datagrams, 53).close()
      const last = client(session.datagrams, 53)
      last.send("first")
      assert.strictEqual(textOf(expectKind(yield* first.next, "datagram").bytes), "first")
    })
  )

  it.live("are lost between two connections, and go on over the next", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest)
      const each = client(session.datagrams, 53)
      each.send("before")
      yield* first.next
      first.socket.destroy()
      const second = yield* guest.accept
      each.send("between")
      yield* second.greet("running")
      const probe = yield* Effect.forkChild(session.probe(3000, 30_000), { startImmediately: true })
      expectKind(yield* second.next, "probe")
      each.send("after")
      const { flow, bytes } = expectKind(yield* second.next, "datagram")
      assert.strictEqual(textOf(bytes), "after")
      second.send({ kind: "reply", flow, bytes: bytesOf("answer") })
      assert.strictEqual(yield* each.reply, "answer")
      yield* Fiber.interrupt(probe)
    })
  )

  it.live("are dropped while the guest takes none, and hold up neither its log nor what it is asked", () =>
    Effect.gen(function* () {
      const log = recordedLog()
      const guest = yield* scriptedGuest
      yield* Effect.gen(function* () {
        const [session, first] = yield* begin(guest)
        const each = session.datagrams.open(53, () => undefined)
        first.socket.pause()
        const large = new Uint8Array(60_000)
        for (let count = 0; count < 1_000; count++) each.send(large)
        // what the guest says is taken all the same
        first.send({ kind: "event", sequence: 1, event: { kind: "started" } })
        assert.deepStrictEqual(yield* Queue.take(session.events), { kind: "started" })
        const probe = yield* Effect.forkChild(session.probe(3000, 30_000), { startImmediately: true })
        first.socket.resume()
        let taken = 0
        let record = yield* first.next
        for (; record.kind === "datagram"; record = yield* first.next) taken++
        const { id } = expectKind(record, "probe")
        first.send({ kind: "probe-result", id, outcome: "accepted" })
        assert.strictEqual(yield* Fiber.join(probe), "accepted")
        assert.isAbove(taken, 0)
        assert.isBelow(taken, 100)
        while (log.lines.length === 0) yield* Effect.sleep(5)
        assert.match(
          log.lines[0] ?? "",
          /^Warn \d{3} UDP datagrams found no room on their way to the guest of web or back/u
        )
        while (first.acknowledged() < 1) yield* Effect.sleep(5)
      }).pipe(Effect.provide(log.layer))
    })
  )

  it.live("that found no room in the guest are told to the log", () =>
    Effect.gen(function* () {
      const log = recordedLog()
      yield* Effect.gen(function* () {
        const [, first] = yield* begin(yield* scriptedGuest)
        first.send({ kind: "dropped", datagrams: 42 })
        while (log.lines.length === 0) yield* Effect.sleep(5)
        assert.include(log.lines[0], "42 UDP datagrams found no room")
      }).pipe(Effect.provide(log.layer))
    })
  )

  it.live("are not sent to an older guest, which would skip them, and the log says what helps", () =>
    Effect.gen(function* () {
      const log = recordedLog()
      yield* Effect.gen(function* () {
        const [session, first] = yield* begin(yield* scriptedGuest, "running", 1)
        const each = client(session.datagrams, 53)
        each.send("hello")
        each.close()
        const freeze = yield* Effect.forkChild(session.freeze(30_000), { startImmediately: true })
        assert.strictEqual((yield* first.next).kind, "freeze")
        first.send({ kind: "receipt", of: HostType.freeze, outcome: "taken" })
        yield* Fiber.join(freeze)
        while (log.lines.length === 0) yield* Effect.sleep(5)
        assert.include(log.lines[0], "the guest of web is of an image that carries no UDP")
      }).pipe(Effect.provide(log.layer))
    })
  )

  it.live("never throw, whatever they hold and whatever state the conversation is in", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest)
      const tryAll = () =>
        fc.assert(
          fc.property(fc.uint8Array({ maxLength: 40 }), fc.nat(65535), (bytes, port) => {
            const each = session.datagrams.open(port, () => undefined)
            each.send(bytes)
            each.send(new Uint8Array(70_000))
            each.close()
            each.send(bytes)
          }),
          { numRuns: 20 }
        )
      tryAll()
      first.socket.destroy()
      tryAll()
      yield* guest.end({ kind: "exited", code: 0 })
      tryAll()
    })
  )

  it.live("go on when a client's own handler fails", () =>
    Effect.gen(function* () {
      const log = recordedLog()
      const [session, first] = yield* begin(yield* scriptedGuest).pipe(Effect.provide(log.layer))
      const broken = session.datagrams.open(53, () => {
        throw new Error("a defect")
      })
      broken.send(bytesOf("one"))
      const { flow } = expectKind(yield* first.next, "datagram")
      first.send({ kind: "reply", flow, bytes: bytesOf("boom") })
      const each = client(session.datagrams, 53)
      each.send("two")
      const other = expectKind(yield* first.next, "datagram")
      first.send({ kind: "reply", flow: other.flow, bytes: bytesOf("fine") })
      assert.strictEqual(yield* each.reply, "fine")
      assert.include(log.lines[0], "a reply over UDP could not be passed on")
    })
  )
})
