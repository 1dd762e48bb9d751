/** The relay between a VMM and ZeroFS: one export, whatever is asked of it. */
import { type ChildProcess, execFile, spawn } from "node:child_process"
import * as fs from "node:fs"
import { createConnection } from "node:net"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as fc from "fast-check"
import { goOption, openExport } from "../../../layers/volume/zerofs/nbd.ts"
import { killed, untilLine } from "../../support/child.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { compiledRelay } from "../../support/zerofs/fixture.ts"

const started = (program: string, args: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() => spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] })),
    (child: ChildProcess) => killed(child)
  )

const untilThere = (file: string): Effect.Effect<void> =>
  Effect.suspend(() =>
    fs.existsSync(file) ? Effect.void : Effect.andThen(Effect.sleep(10), untilThere(file))
  )

/** A server with the exports `mine` and `other`, not started yet, and a relay that gives `mine`. */
const relayed = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const at = (name: string) => path.join(directory, name)
  fs.mkdirSync(at("exports"))
  fs.writeFileSync(at("exports/mine"), Buffer.alloc(1 << 20, "mine "))
  fs.writeFileSync(at("exports/other"), Buffer.alloc(1 << 20, "other "))
  fs.mkdirSync(at("relay"))
  const relay = yield* started(yield* compiledRelay, [at("relay/s"), at("server"), "mine"])
  yield* untilLine(relay, (line) => line === "ready")
  const serve = Effect.gen(function* () {
    fs.rmSync(at("server"), { force: true })
    const server = yield* started("nbdkit", ["-f", "-U", at("server"), "file", `dir=${at("exports")}`])
    yield* untilThere(at("server"))
    return server
  })
  return { serve, relay, socket: at("relay/s"), server: at("server"), mine: at("exports/mine") }
})

/** An NBD client that is not ours; its exit code and what it prints. */
const nbdinfo = (
  ...args: ReadonlyArray<string>
): Effect.Effect<{ readonly code: number; readonly text: string }> =>
  Effect.callback((resume) => {
    execFile("nbdinfo", args, { timeout: 20_000 }, (error, stdout, stderr) => {
      resume(Effect.succeed({ code: Number(error?.code ?? 0), text: `${stdout}${stderr}` }))
    })
  })

const uri = (socket: string, name: string) => `nbd+unix:///${name}?socket=${socket}`

/** Sends bytes as they are; gives all that comes back until the relay hangs up, or has said nothing for a while. */
const raw = (socketPath: string, bytes: Uint8Array): Effect.Effect<Buffer> =>
  Effect.callback((resume) => {
    const socket = createConnection(socketPath)
    const received: Array<Buffer> = []
    socket.on("connect", () => socket.write(bytes))
    socket.on("error", () => undefined)
    socket.setTimeout(300, () => socket.destroy())
    socket.on("data", (chunk) => received.push(chunk))
    socket.on("close", () => resume(Effect.succeed(Buffer.concat(received))))
  })

const FLAGS = Buffer.from([0, 0, 0, 3])

const option = (type: number, data: Uint8Array): Buffer => {
  const header = Buffer.alloc(16)
  header.writeBigUInt64BE(0x49484156454f5054n)
  header.writeUInt32BE(type, 8)
  header.writeUInt32BE(data.length, 12)
  return Buffer.concat([header, data])
}

/** Asks for the first bytes of whatever is open. */
const READ = Buffer.from(
  "25609513 0000 0000 0000000000000001 0000000000000000 00000010".replaceAll(" ", ""),
  "hex"
)

describe("a VMM's relay", () => {
  it.live("gives its own export to a client that is not ours, and lists no other", () =>
    Effect.gen(function* () {
      const { serve, socket } = yield* relayed
      yield* serve
      const list = yield* nbdinfo("--list", uri(socket, ""))
      assert.deepStrictEqual(list.text.match(/export="[^"]*"/gu), ['export="mine"'])
      assert.strictEqual((yield* nbdinfo("--size", uri(socket, "mine"))).text.trim(), String(1 << 20))
    })
  )

  for (const name of ["other", "", "mine/../other", "MINE", "mine\0other"]) {
    it.live(`gives no export that is named ${JSON.stringify(name)}`, () =>
      Effect.gen(function* () {
        const { serve, socket } = yield* relayed
        yield* serve
        const error = yield* Effect.flip(Effect.scoped(openExport(socket, name)))
        assert.strictEqual(error._tag, "NoExport")
        const old = yield* raw(socket, Buffer.concat([FLAGS, option(1, Buffer.from(name)), READ]))
        assert.strictEqual(old.length, 18, "it is hung up on behind the greeting")
      })
    )
  }

  it.live("says nothing of another export's data, whatever bytes it is sent", () =>
    Effect.gen(function* () {
      const { serve, socket } = yield* relayed
      yield* serve
      const words = fc.oneof(
        fc.constant(goOption("other")),
        fc.constant(goOption("")),
        fc.constant(option(1, Buffer.from("other"))),
        fc.constant(READ),
        fc
          .tuple(fc.integer({ min: 0, max: 15 }), fc.uint8Array({ maxLength: 40 }))
          .map(([type, data]) => option(type, data)),
        fc
          .tuple(
            fc.integer({ min: 1, max: 15 }),
            fc.integer({ min: 0, max: 20 }),
            fc.string({ maxLength: 20 })
          )
          .map(([type, claimed, name]) => {
            const length = Buffer.alloc(4)
            length.writeUInt32BE(claimed)
            return option(type, Buffer.concat([length, Buffer.from(name)]))
          }),
        fc.uint8Array({ maxLength: 64 })
      )
      const sent = fc.array(words, { maxLength: 6 }).map((parts) => Buffer.concat([FLAGS, ...parts]))
      for (const bytes of fc.sample(sent, 60)) {
        const answer = yield* raw(socket, bytes)
        assert.notInclude(answer.toString("latin1"), "other other")
      }
      // and still serves
      const size = yield* Effect.scoped(Effect.map(openExport(socket, "mine"), (mine) => mine.size))
      assert.strictEqual(size, 1 << 20)
    })
  )

  it.live("has a client wait for a server that is away, and come back after one that went away", () =>
    Effect.gen(function* () {
      const { serve, socket } = yield* relayed
      const read = Effect.scoped(Effect.flatMap(openExport(socket, "mine"), (mine) => mine.read(0, 5)))
      const waiting = yield* Effect.forkChild(read, { startImmediately: true })
      const first = yield* serve
      assert.strictEqual((yield* Fiber.join(waiting)).toString(), "mine ")
      yield* Effect.scoped(
        Effect.gen(function* () {
          const mine = yield* openExport(socket, "mine")
          yield* killed(first)
          const error = yield* Effect.flip(mine.read(0, 5))
          assert.strictEqual(error._tag, "NoAnswer")
        })
      )
      yield* serve
      assert.strictEqual((yield* read).toString(), "mine ")
    })
  )

  it.live("serves one client at a time, and the next one when the first has gone", () =>
    Effect.gen(function* () {
      const { serve, socket } = yield* relayed
      yield* serve
      yield* Effect.scoped(
        Effect.gen(function* () {
          const first = yield* openExport(socket, "mine")
          yield* Effect.flip(Effect.scoped(openExport(socket, "mine")))
          assert.strictEqual((yield* first.read(0, 5)).toString(), "mine ")
        })
      )
      yield* Effect.scoped(Effect.flatMap(openExport(socket, "mine"), (mine) => mine.read(0, 5)))
    })
  )

  it.live("carries a megabyte of writes whole", () =>
    Effect.gen(function* () {
      const { serve, socket, mine } = yield* relayed
      yield* serve
      const image = `${mine}.new`
      fs.writeFileSync(image, Buffer.from(Array.from({ length: 1 << 20 }, (_, i) => (i * 31) >> 3)))
      yield* Effect.callback<void, Error>((resume) => {
        const args = ["convert", "-n", "-f", "raw", "-O", "raw", image, uri(socket, "mine")]
        execFile("qemu-img", args, { timeout: 20_000 }, (error) =>
          resume(error === null ? Effect.void : Effect.fail(error))
        )
      })
      assert.isTrue(fs.readFileSync(mine).equals(fs.readFileSync(image)))
    })
  )
})
