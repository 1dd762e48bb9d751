import { createServer, type Socket } from "node:net"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { connectQmp } from "../../../layers/hypervisor/qemu/qmp.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const GREETING = '{"QMP": {"version": {}, "capabilities": []}}\r\n'

/** Something that listens like a QEMU; `talk` has each connection. */
const server = (talk: (socket: Socket) => void) =>
  Effect.gen(function* () {
    const path = join(yield* temporaryDirectory, "qmp.sock")
    yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const listening = createServer(talk)
        listening.listen(path, () => resume(Effect.succeed(listening)))
      }),
      (listening) => Effect.sync(() => listening.close())
    )
    return path
  })

/** Answers each command with what `reply` gives for it. */
const answering =
  (reply: (command: string, id: number) => string) =>
  (socket: Socket): void => {
    socket.on("error", () => undefined)
    socket.write(GREETING)
    socket.on("data", (bytes) => {
      for (const line of bytes.toString().trim().split("\n")) {
        const { execute, id } = JSON.parse(line) as { execute: string; id: number }
        socket.write(reply(execute, id))
      }
    })
  }

const fine = (id: number, value: unknown = {}) => `${JSON.stringify({ return: value, id })}\r\n`
const once = { untilListening: false }

describe("QMP", () => {
  it.live("gives what QEMU returns, also when answers come in pieces and out of order", () =>
    Effect.gen(function* () {
      const held: Array<string> = []
      const path = yield* server(
        answering((command, id) => {
          if (command === "qmp_capabilities") return fine(id)
          held.push(fine(id, command))
          return held.length < 2 ? "" : held.reverse().join("")
        })
      )
      const qmp = yield* connectQmp(path, once)
      const answers = yield* Effect.all([qmp.execute("first"), qmp.execute("second")], {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(answers, ["first", "second"])
    })
  )

  it.live("fails with QEMU's words when it refuses", () =>
    Effect.gen(function* () {
      const path = yield* server(
        answering((command, id) =>
          command === "qmp_capabilities"
            ? fine(id)
            : `${JSON.stringify({ error: { class: "GenericError", desc: "no such device" }, id })}\r\n`
        )
      )
      const qmp = yield* connectQmp(path, once)
      const error = yield* Effect.flip(qmp.execute("eject"))
      assert.strictEqual(error.message, "QEMU did not answer eject: no such device")
    })
  )

  it.live("fails a command when QEMU hangs up, and tells that it has", () =>
    Effect.gen(function* () {
      const path = yield* server((socket) => {
        answering((command, id) => {
          if (command === "qmp_capabilities") return fine(id)
          socket.destroy()
          return ""
        })(socket)
      })
      const qmp = yield* connectQmp(path, once)
      assert.include((yield* Effect.flip(qmp.execute("quit"))).message, "hung up")
      yield* Deferred.await(qmp.closed)
    })
  )

  it.live("remembers why the guest shut down", () =>
    Effect.gen(function* () {
      const path = yield* server(
        answering((_, id) => {
          const event = { event: "SHUTDOWN", data: { guest: true, reason: "guest-reset" } }
          return `${JSON.stringify(event)}\r\n${fine(id)}`
        })
      )
      const qmp = yield* connectQmp(path, once)
      assert.strictEqual(qmp.shutdownReason(), "guest-reset")
    })
  )

  it.live("waits for a QEMU that does not listen yet, when told to", () =>
    Effect.gen(function* () {
      const path = join(yield* temporaryDirectory, "qmp.sock")
      assert.match((yield* Effect.flip(connectQmp(path, once))).message, /ENOENT/u)
      const waiting = yield* Effect.forkChild(connectQmp(path, { untilListening: true }), {
        startImmediately: true
      })
      const listening = createServer(answering((_, id) => fine(id)))
      yield* Effect.acquireRelease(
        Effect.sync(() => listening.listen(path)),
        () => Effect.sync(() => listening.close())
      )
      yield* Fiber.join(waiting)
    })
  )

  it.live("ignores lines that are no JSON objects, and hangs up on one without an end", () =>
    Effect.gen(function* () {
      const path = yield* server((socket) => {
        answering((command, id) =>
          command === "qmp_capabilities"
            ? `nonsense\n[1]\nnull\n"x"\n${fine(id)}`
            : "x".repeat(2 * 1024 * 1024)
        )(socket)
      })
      const qmp = yield* connectQmp(path, once)
      assert.include((yield* Effect.flip(qmp.execute("flood"))).message, "hung up")
    })
  )

  it.live("hangs up when its scope closes", () =>
    Effect.gen(function* () {
      const hungUp = yield* Deferred.make<void>()
      const path = yield* server((socket) => {
        answering((_, id) => fine(id))(socket)
        socket.on("close", () => Deferred.doneUnsafe(hungUp, Effect.void))
      })
      yield* Effect.scoped(connectQmp(path, once))
      yield* Deferred.await(hungUp)
    })
  )
})
