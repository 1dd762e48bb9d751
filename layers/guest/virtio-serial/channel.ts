/** One connection to PID 1, from the host's hello to the hang-up: answers find their questions, events go on. */
import { randomBytes } from "node:crypto"
import { Deferred, Effect, Option, Result } from "effect"
import type { GuestUsage, PortProbe } from "../../../src/services/Guest.ts"
import { encodeHostRecord, encodeReset } from "../../../src/wire/encode.ts"
import {
  type GuestRecord,
  type HostRecord,
  MAX_HOST_PAYLOAD,
  PROTOCOL_VERSION,
  type ReceiptOutcome,
  SESSION_BYTES
} from "../../../src/wire/records.ts"
import { makeGuestRecordDecoder } from "../../../src/wire/stream.ts"
import type { Connection } from "./connection.ts"
import { openConnection } from "./connection.ts"
import type { Replies } from "./datagrams.ts"
import type { Events } from "./events.ts"

/** A connection on which PID 1 has answered the host's hello. */
export interface Channel {
  readonly phase: Extract<GuestRecord, { kind: "hello-ack" }>["phase"]
  /** Of the wire, as PID 1 knows it. */
  readonly version: number
  /** Fails with the reason: a record that the wire cannot carry, or a guest that takes nothing. */
  readonly send: (record: HostRecord) => Effect.Effect<void, string>
  /** Sends what may be lost, outside Effect; false when there is no room for it. */
  readonly sendLossy: (record: HostRecord) => boolean
  /** Done when the connection has ended, with the reason. */
  readonly lost: Deferred.Deferred<string>
  readonly probes: Map<number, Deferred.Deferred<PortProbe>>
  readonly usages: Map<number, Deferred.Deferred<GuestUsage>>
  /** By the type of the record that the receipt is for. */
  readonly receipts: Map<number, Deferred.Deferred<ReceiptOutcome>>
}

/** How a connection ended. */
export interface Ending {
  /** `unreachable`: nobody listened. `malformed`: the guest's bytes were no records. `closed`: the other end hung up. */
  readonly kind: "unreachable" | "silent" | "malformed" | "closed"
  readonly reason: string
  readonly greeted: boolean
}

/** What may wait for a guest to read it: a boot spec, and little more. */
const UNSENT_LIMIT = MAX_HOST_PAYLOAD + 512 * 1024
/** Datagrams are dropped while so much waits. */
const LOSSY_UNSENT_LIMIT = 256 * 1024
/** Acknowledgements are held back while so much waits: the last says it all. No flood of datagrams holds them back. */
const ACK_UNSENT_LIMIT = LOSSY_UNSENT_LIMIT + 16 * 1024
/** How often it is looked whether the reader has taken what lies in the queue. */
const ACK_EVERY_MS = 20

const makeSend =
  (connection: Connection): Channel["send"] =>
  (record) =>
    Effect.suspend(() => {
      const bytes = encodeHostRecord(record)
      if (Result.isFailure(bytes)) return Effect.fail(bytes.failure.message)
      if (connection.unsent() + bytes.success.length > UNSENT_LIMIT) {
        return Effect.fail("it does not take what it was told before")
      }
      connection.write(bytes.success)
      return Effect.void
    })

const makeSendLossy =
  (connection: Connection): Channel["sendLossy"] =>
  (record) => {
    if (connection.unsent() >= LOSSY_UNSENT_LIMIT) return false
    const bytes = encodeHostRecord(record)
    if (Result.isFailure(bytes) || connection.unsent() + bytes.success.length > LOSSY_UNSENT_LIMIT)
      return false
    connection.write(bytes.success)
    return true
  }

/** Acknowledges what the reader has taken, for as long as it runs. A new connection starts from nothing. */
const acknowledge = (connection: Connection, channel: Channel, events: Events) => {
  let told = -1
  const tell = Effect.suspend(() => {
    const sequence = events.dealtWith()
    if (sequence <= told || connection.unsent() > ACK_UNSENT_LIMIT) return Effect.void
    told = sequence
    return Effect.ignore(channel.send({ kind: "ack", sequence }))
  })
  return {
    tell,
    loop: Effect.forever(
      events.pending.pipe(Effect.andThen(tell), Effect.andThen(Effect.sleep(ACK_EVERY_MS)))
    )
  }
}

const answer = <K, A>(waiting: Map<K, Deferred.Deferred<A>>, key: K, value: A) => {
  const deferred = waiting.get(key)
  waiting.delete(key)
  if (deferred !== undefined) Deferred.doneUnsafe(deferred, Effect.succeed(value))
}

/**
 * Connects, says hello and listens until the connection ends. `onGreeted` is told of the channel when PID 1 has
 * answered, for which it is waited at most `helloMs`.
 */
export const converse = (
  path: string,
  events: Events,
  replies: Replies,
  helloMs: number,
  onGreeted: (channel: Channel) => Effect.Effect<void>
): Effect.Effect<Ending> =>
  Effect.gen(function* () {
    const opened = yield* Effect.result(openConnection(path))
    if (Result.isFailure(opened))
      return { kind: "unreachable", reason: opened.failure, greeted: false } as const
    const connection = opened.success
    const sessionBytes = new Uint8Array(randomBytes(SESSION_BYTES))
    const decoder = makeGuestRecordDecoder(sessionBytes)
    connection.write(Result.getOrThrow(encodeReset(PROTOCOL_VERSION, sessionBytes)))

    let channel: Channel | undefined
    const acks = { tell: Effect.void as Effect.Effect<void> }

    const greet = Effect.fnUntraced(function* ({ phase, version }: Pick<Channel, "phase" | "version">) {
      const greeted: Channel = {
        phase,
        version,
        send: makeSend(connection),
        sendLossy: makeSendLossy(connection),
        lost: yield* Deferred.make<string>(),
        probes: new Map(),
        usages: new Map(),
        receipts: new Map()
      }
      channel = greeted
      const { tell, loop } = acknowledge(connection, greeted, events)
      acks.tell = tell
      yield* Effect.forkScoped(loop)
      yield* onGreeted(greeted)
      return greeted
    })

    const deal = Effect.fnUntraced(function* (record: GuestRecord) {
      if (channel === undefined) {
        if (record.kind === "hello-ack") yield* greet(record)
        return
      }
      switch (record.kind) {
        case "event":
          return yield* events.accept(record.sequence, record.event)
        case "probe-result":
          return answer(channel.probes, record.id, record.outcome)
        case "usage-result":
          return answer(channel.usages, record.id, record.usage)
        case "receipt":
          return answer(channel.receipts, record.of, record.outcome)
        case "reply":
          return yield* replies.deliver(record.flow, record.bytes)
        case "dropped":
          return replies.dropped(record.datagrams)
        case "hello-ack":
          return
      }
    })

    const listen = Effect.gen(function* () {
      while (true) {
        const piece = yield* channel === undefined
          ? Effect.timeoutOption(connection.read, helloMs)
          : Effect.asSome(connection.read)
        if (Option.isNone(piece)) return ended("silent", `PID 1 said nothing in ${helloMs} ms`)
        if (piece.value === undefined) return ended("closed", "the connection was closed")
        const records = decoder.push(piece.value)
        if (Result.isFailure(records)) return ended("malformed", records.failure.message)
        for (const record of records.success) yield* deal(record)
        yield* acks.tell
      }
    })
    const ended = (kind: Ending["kind"], reason: string): Ending => ({
      kind,
      reason,
      greeted: channel !== undefined
    })

    return yield* listen.pipe(
      Effect.onExit((exit) =>
        Effect.sync(() => {
          if (channel === undefined) return
          const reason = exit._tag === "Success" ? exit.value.reason : "the conversation was ended"
          Deferred.doneUnsafe(channel.lost, Effect.succeed(reason))
        })
      )
    )
  }).pipe(Effect.scoped)
