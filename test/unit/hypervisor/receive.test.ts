/** The end of a machine's journey through its socket, when QEMU ends on the way. */
import { once } from "node:events"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createConnection } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { receiveMachine } from "../../../layers/hypervisor/qemu/snapshot/receive.ts"
import { u32, u64 } from "./big-endian.ts"

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "nibrunner-receive-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const PAGE_BYTES = 4_096
const memory = { block: "ram", bytes: 2_048 * PAGE_BYTES }

const ram = Buffer.from("\x03ram")

/** A machine of which some memory comes, and no more: as QEMU sends it, from its header to somewhere in a part. */
const broken = (pages: number) =>
  Buffer.concat([
    Buffer.from("QEVM"),
    u32(3),
    Buffer.from([7]),
    u32(7),
    Buffer.from("microvm"),
    Buffer.from([1]),
    u32(2),
    ram,
    u32(0),
    u32(4),
    u64(memory.bytes + 0x04),
    ram,
    u64(memory.bytes),
    u64(0x10),
    Buffer.from([0x7e]),
    u32(2),
    Buffer.from([2]),
    u32(2),
    ...Array.from({ length: pages }, (_, number) =>
      Buffer.concat([
        u64(number * PAGE_BYTES + 0x08 + (number === 0 ? 0 : 0x20)),
        number === 0 ? ram : Buffer.alloc(0),
        Buffer.alloc(PAGE_BYTES, 1)
      ])
    )
  ])

describe("the socket of a machine", () => {
  it.live("takes the place of one that a daemon left as it died over a sleep", () =>
    Effect.gen(function* () {
      const path = yield* folder
      const socket = { path: join(path, "save.sock"), owner: undefined }
      writeFileSync(socket.path, "")
      yield* receiveMachine(socket, memory, join(path, "memory"), () => Effect.void)
      const sender = createConnection({ path: socket.path })
      yield* Effect.promise(() => once(sender, "connect"))
      sender.destroy()
    }).pipe(Effect.scoped)
  )
})

describe("a machine that stops arriving", () => {
  it.live("is given up whenever that is asked, also as the stream itself fails", () =>
    Effect.gen(function* () {
      for (let round = 0; round < 60; round++) {
        yield* Effect.gen(function* () {
          const path = yield* folder
          const socket = { path: join(path, "save.sock"), owner: undefined }
          const receive = yield* receiveMachine(socket, memory, join(path, "memory"), () => Effect.void)
          const receiving = yield* Effect.forkChild(receive, { startImmediately: true })
          const sender = createConnection({ path: socket.path })
          sender.on("error", () => undefined)
          yield* Effect.promise(() => once(sender, "connect"))
          sender.end(broken([0, 1, 1_900][round % 3] ?? 0))
          yield* Effect.promise(() => once(sender, "finish")).pipe(Effect.timeout("10 seconds"))
          yield* Effect.promise(async () => {
            for (let turn = 0; turn < round * 3; turn++) await new Promise(setImmediate)
          })
          const exit = yield* Fiber.interrupt(receiving).pipe(
            Effect.andThen(Fiber.await(receiving)),
            Effect.timeout("10 seconds")
          )
          assert.isTrue(Exit.isFailure(exit), `round ${round}`)
        }).pipe(Effect.scoped)
      }
    })
  )
})
