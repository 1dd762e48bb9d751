import { createServer, type Server, type Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import * as fc from "fast-check"
import { layerHttpProber, requestTarget } from "../../../layers/health/http.ts"
import { HealthProber, type HttpProbe } from "../../../src/services/HealthProber.ts"

/** A server on a free port of loopback that does with each connection what it is told. */
const server = (talk: (socket: Socket) => void) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly listening: Server; readonly port: number; readonly sockets: Set<Socket> }>(
      (resume) => {
        const sockets = new Set<Socket>()
        const listening = createServer((socket) => {
          sockets.add(socket)
          socket.on("error", () => undefined)
          socket.on("close", () => sockets.delete(socket))
          talk(socket)
          // a socket that nobody reads never learns that the other end has gone
          socket.resume()
        })
        listening.listen(0, "127.0.0.1", () => {
          const address = listening.address()
          const port = typeof address === "object" && address !== null ? address.port : 0
          resume(Effect.succeed({ listening, port, sockets }))
        })
      }
    ),
    ({ listening, sockets }) =>
      Effect.callback<void>((resume) => {
        for (const socket of sockets) socket.destroy()
        listening.close(() => resume(Effect.void))
      })
  )

/** Answers each request with these bytes. */
const saying = (answer: string) => (socket: Socket) => {
  socket.once("data", () => socket.write(answer))
}

const probe = (port: number, changes: Partial<HttpProbe> = {}) =>
  HealthProber.use((prober) =>
    prober.http({ host: "127.0.0.1", port, path: "/health", timeoutMs: 30_000, ...changes })
  ).pipe(Effect.provide(layerHttpProber))

describe("an HTTP probe", () => {
  it.live("asks for the path on a connection that it closes, and gives the status", () =>
    Effect.gen(function* () {
      const asked: Array<string> = []
      const { port, sockets } = yield* server((socket) => {
        socket.once("data", (bytes) => {
          asked.push(bytes.toString())
          socket.write("HTTP/1.1 204 No Content\r\n\r\n")
        })
      })
      assert.deepStrictEqual(yield* probe(port, { path: "/up?deep=1" }), { kind: "answered", status: 204 })
      const [first = ""] = asked
      assert.isTrue(first.startsWith("GET /up?deep=1 HTTP/1.1\r\n"))
      assert.match(first, new RegExp(`\\r\\nHost: 127\\.0\\.0\\.1:${port}\\r\\n`, "iu"))
      assert.match(first, /\r\nconnection: close\r\n/iu)
      assert.deepStrictEqual(yield* probe(port), { kind: "answered", status: 204 })
      assert.strictEqual(asked.length, 2)
      while (sockets.size > 0) yield* Effect.sleep(1)
    })
  )

  it.live("gives every status as it is, and follows no redirect", () =>
    Effect.gen(function* () {
      for (const status of [200, 301, 404, 500, 101, 599]) {
        let connections = 0
        const { port } = yield* server((socket) => {
          connections++
          saying(
            `HTTP/1.1 ${status} X\r\nLocation: /elsewhere\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n`
          )(socket)
        })
        assert.deepStrictEqual(yield* probe(port), { kind: "answered", status })
        assert.strictEqual(connections, 1)
      }
    })
  )

  it.live("does not wait for the end of a body, and reads none of it", () =>
    Effect.gen(function* () {
      const { port } = yield* server((socket) => {
        socket.once("data", () => {
          socket.write("HTTP/1.1 200 OK\r\n\r\n")
          const flood = () => {
            while (!socket.destroyed && socket.write("x".repeat(65536)));
          }
          socket.on("drain", flood)
          flood()
        })
      })
      assert.deepStrictEqual(yield* probe(port), { kind: "answered", status: 200 })
    })
  )

  it.live("is refused where nobody listens", () =>
    Effect.gen(function* () {
      const { port } = yield* Effect.scoped(server(() => undefined))
      assert.deepStrictEqual(yield* probe(port), { kind: "refused" })
    })
  )

  it.live("fails in words where the connection is closed before an answer", () =>
    Effect.gen(function* () {
      for (const end of [(socket: Socket) => socket.end(), (socket: Socket) => socket.resetAndDestroy()]) {
        const { port } = yield* server((socket) => {
          socket.once("data", () => end(socket))
        })
        assert.deepStrictEqual(yield* probe(port), {
          kind: "failed",
          reason: "the connection was closed before an answer"
        })
      }
    })
  )

  it.live("fails in words where the answer is not HTTP, or its head has no end", () =>
    Effect.gen(function* () {
      for (const answer of ["SSH-2.0-OpenSSH\r\n", `HTTP/1.1 200 OK\r\nX: ${"x".repeat(200_000)}`]) {
        const { port } = yield* server(saying(answer))
        assert.deepStrictEqual(yield* probe(port), { kind: "failed", reason: "what it answered is not HTTP" })
      }
    })
  )

  it.live("ends at its time limit, also when bytes keep coming", () =>
    Effect.gen(function* () {
      for (const talk of [
        () => undefined,
        (socket: Socket) => {
          const drip = setInterval(() => socket.write("HTTP/1.1 100 Continue\r\n\r\n"), 20)
          socket.on("close", () => clearInterval(drip))
        }
      ]) {
        const { port, sockets } = yield* server(talk)
        assert.deepStrictEqual(yield* probe(port, { timeoutMs: 200 }), { kind: "timed-out", ms: 200 })
        while (sockets.size > 0) yield* Effect.sleep(1)
      }
    })
  )

  it.live("lets go of its connection when it is interrupted", () =>
    Effect.gen(function* () {
      const connected = yield* Deferred.make<void>()
      const { port, sockets } = yield* server(() => {
        Deferred.doneUnsafe(connected, Effect.void)
      })
      const fiber = yield* Effect.forkChild(probe(port), { startImmediately: true })
      yield* Deferred.await(connected)
      yield* Fiber.interrupt(fiber)
      while (sockets.size > 0) yield* Effect.sleep(1)
    })
  )

  it.live("asks for a path with spaces or letters beyond ASCII in percent-encoding", () =>
    Effect.gen(function* () {
      let line = ""
      const { port } = yield* server((socket) => {
        socket.once("data", (bytes) => {
          line = bytes.toString().split("\r\n")[0] ?? ""
          socket.write("HTTP/1.1 200 OK\r\n\r\n")
        })
      })
      yield* probe(port, { path: "/a b/ü?x=%20" })
      assert.strictEqual(line, "GET /a%20b/%C3%BC?x=%20 HTTP/1.1")
    })
  )

  it("never puts anything into the request line but printable ASCII", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (path) => {
        assert.match(requestTarget(`/${path}`), /^\/[!-~]*$/u)
      })
    )
  })
})
