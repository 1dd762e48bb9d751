/** A PID 1 of a test's own on a unix socket, and a machine that is nothing else. */
import { createServer, type Server, type Socket } from "node:net"
import { join } from "node:path"
import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber, Option, Queue, Result } from "effect"
import { layerVirtioSerialGuest } from "../../../layers/guest/virtio-serial/layer.ts"
import type { AppId } from "../../../src/document/schema.ts"
import { Guest, type GuestPhase } from "../../../src/services/Guest.ts"
import type { Machine, MachineExit } from "../../../src/services/Hypervisor.ts"
import { encodeGuestRecord } from "../../../src/wire/encode.ts"
import { type GuestRecord, type HostRecord, PROTOCOL_VERSION } from "../../../src/wire/records.ts"
import { makeHostRecordDecoder } from "../../../src/wire/stream.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

/** One connection of a host, as PID 1 has it. */
export interface HostConnection {
  readonly socket: Socket
  /** The next record of the host; acknowledgements are left out. */
  readonly next: Effect.Effect<HostRecord>
  /** The last sequence that the host has acknowledged; -1 before the first. */
  readonly acknowledged: () => number
  readonly send: (record: GuestRecord) => void
  /** Waits for the host's hello and answers it; `version` is that of the guest, the present one unless told. */
  readonly greet: (phase: GuestPhase, version?: number) => Effect.Effect<void>
}

export interface ScriptedGuest {
  readonly machine: Machine
  /** The next connection that a host makes. */
  readonly accept: Effect.Effect<HostConnection>
  /** The VMM ends, its socket with it. */
  readonly end: (exit: MachineExit) => Effect.Effect<void>
}

const converse = (socket: Socket): HostConnection => {
  const records = Effect.runSync(Queue.unbounded<HostRecord>())
  const decoder = makeHostRecordDecoder()
  let acknowledged = -1
  socket.on("error", () => undefined)
  socket.on("data", (bytes) => {
    for (const record of decoder.push(bytes)) {
      if (record.kind === "ack") acknowledged = record.sequence
      else Queue.offerUnsafe(records, record)
    }
  })
  const send = (record: GuestRecord) => {
    socket.write(Result.getOrThrow(encodeGuestRecord(record)))
  }
  const next = Queue.take(records)
  return {
    socket,
    next,
    send,
    acknowledged: () => acknowledged,
    greet: (phase, version = PROTOCOL_VERSION) =>
      Effect.map(next, (record) => {
        if (record.kind !== "hello") throw new Error(`the host begins with ${record.kind}`)
        send({
          kind: "hello-ack",
          session: record.session,
          version,
          phase,
          nextSequence: 0
        })
      })
  }
}

export const scriptedGuest = Effect.gen(function* () {
  const path = join(yield* temporaryDirectory, "guest.sock")
  const connections = yield* Queue.unbounded<HostConnection>()
  const sockets = new Set<Socket>()
  const exit = yield* Deferred.make<MachineExit>()
  const server = yield* Effect.acquireRelease(
    Effect.callback<Server>((resume) => {
      const listening = createServer((socket) => {
        sockets.add(socket)
        Queue.offerUnsafe(connections, converse(socket))
      })
      listening.listen(path, () => resume(Effect.succeed(listening)))
    }),
    (listening) =>
      Effect.sync(() => {
        for (const socket of sockets) socket.destroy()
        listening.close()
      })
  )
  const machine: Machine = {
    record: { machineId: "00000000000000aa", appId: "web" as AppId, slot: 0, guestImageVersion: "test" },
    exit,
    channel: { kind: "unix", path },
    residentBytes: Effect.succeed(Option.none()),
    waitsForVolume: Effect.succeed(false)
  }
  return {
    machine,
    accept: Queue.take(connections),
    end: (how) =>
      Effect.gen(function* () {
        server.close()
        for (const socket of sockets) socket.end()
        yield* Deferred.succeed(exit, how)
      })
  } satisfies ScriptedGuest
})

export const connect = (machine: Machine, timeoutMs = 30_000) =>
  Guest.use((guest) => guest.connect(machine, timeoutMs)).pipe(Effect.provide(layerVirtioSerialGuest))

/** A session, and PID 1's end of its first connection. */
export const begin = (guest: ScriptedGuest, phase: GuestPhase = "running", version = PROTOCOL_VERSION) =>
  Effect.gen(function* () {
    const connecting = yield* Effect.forkChild(connect(guest.machine), { startImmediately: true })
    const first = yield* guest.accept
    yield* first.greet(phase, version)
    return [yield* Fiber.join(connecting), first] as const
  })

export const expectKind = <K extends HostRecord["kind"]>(record: HostRecord, kind: K) => {
  assert.strictEqual(record.kind, kind)
  return record as Extract<HostRecord, { kind: K }>
}
