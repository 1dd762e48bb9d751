/** The server of the metrics page, over real sockets of the loopback address. */
import { connect, createServer, type Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Schedule } from "effect"
import { layerMetricsPage } from "../../../layers/reporter/metrics.ts"
import { MetricsPage, type Page } from "../../../src/services/MetricsPage.ts"
import { recordedLog } from "../../support/log.ts"

interface Served {
  readonly port: number
}

/** Runs the test against a server that offers the page; none is offered when there is no page. */
const serving = <A, E>(
  page: Effect.Effect<Page> | undefined,
  test: (served: Served) => Effect.Effect<A, E>,
  options: { readonly answerMs?: number } = {}
) =>
  Effect.gen(function* () {
    const listening = yield* Deferred.make<number>()
    const server = layerMetricsPage({
      address: "127.0.0.1",
      port: 0,
      onListening: (port) => Deferred.doneUnsafe(listening, Effect.succeed(port)),
      ...options
    })
    return yield* Effect.gen(function* () {
      if (page !== undefined) yield* (yield* MetricsPage).offer(page)
      return yield* test({ port: yield* Deferred.await(listening) })
    }).pipe(Effect.scoped, Effect.provide(server))
  })

interface Answer {
  readonly status: number
  readonly head: string
  readonly body: string
}

/** Everything that comes back for these bytes, until the server closes. */
const send = (port: number, bytes: string): Effect.Effect<string, Error> =>
  Effect.callback<string, Error>((resume) => {
    let answer = ""
    const socket: Socket = connect(port, "127.0.0.1", () => socket.write(bytes))
    socket.setEncoding("latin1")
    socket.on("data", (piece: string) => {
      answer += piece
    })
    socket.on("error", (error) => resume(Effect.fail(error)))
    socket.on("close", () => resume(Effect.succeed(answer)))
    return Effect.sync(() => socket.destroy())
  }).pipe(Effect.timeout("30 seconds"))

const ask = (port: number, method: string, path: string): Effect.Effect<Answer, Error> =>
  Effect.map(send(port, `${method} ${path} HTTP/1.1\r\nHost: h\r\n\r\n`), (answer) => {
    const end = answer.indexOf("\r\n\r\n")
    return {
      status: Number(/^HTTP\/1\.1 (\d{3})/u.exec(answer)?.[1]),
      head: answer.slice(0, end),
      body: answer.slice(end + 4)
    }
  })

const page = Effect.succeed(["one 1\n", "two 2\n"].map((text) => Buffer.from(text)))

describe("the server of the metrics page", () => {
  it.live("answers GET /metrics with the page, as text that Prometheus takes", () =>
    serving(page, ({ port }) =>
      Effect.gen(function* () {
        const { status, head, body } = yield* ask(port, "GET", "/metrics")
        assert.strictEqual(status, 200)
        assert.strictEqual(body, "one 1\ntwo 2\n")
        assert.match(head, /^content-type: text\/plain; version=0\.0\.4; charset=utf-8$/mu)
        assert.match(head, /^content-length: 12$/mu)
        assert.strictEqual((yield* ask(port, "GET", "/metrics?name=up")).status, 200)
      })
    )
  )

  it.live("answers HEAD with the same head and nothing else", () =>
    serving(page, ({ port }) =>
      Effect.gen(function* () {
        const { status, head, body } = yield* ask(port, "HEAD", "/metrics")
        assert.strictEqual(status, 200)
        assert.match(head, /^content-length: 12$/mu)
        assert.strictEqual(body, "")
      })
    )
  )

  it.live("has nothing but /metrics, and takes no method that changes something", () =>
    serving(page, ({ port }) =>
      Effect.gen(function* () {
        for (const path of ["/", "/metrics/", "/-/reload", "/debug/pprof", "//metrics"]) {
          assert.strictEqual((yield* ask(port, "GET", path)).status, 404, path)
        }
        for (const method of ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"]) {
          const { status, head } = yield* ask(port, method, "/metrics")
          assert.strictEqual(status, 405, method)
          assert.match(head, /^allow: GET, HEAD$/mu)
        }
      })
    )
  )

  it.live("says that there is no page yet before a host offers one", () =>
    serving(undefined, ({ port }) =>
      Effect.gen(function* () {
        const { status, body } = yield* ask(port, "GET", "/metrics")
        assert.strictEqual(status, 503)
        assert.strictEqual(body, "The host is not ready yet.\n")
      })
    )
  )

  it.live("makes one page for many that ask at the same time", () => {
    let made = 0
    const counted = Effect.suspend(() => {
      made++
      return Effect.as(Effect.sleep(100), [Buffer.from("one 1\n")])
    })
    return serving(counted, ({ port }) =>
      Effect.gen(function* () {
        const answers = yield* Effect.forEach(Array.from({ length: 8 }), () => ask(port, "GET", "/metrics"), {
          concurrency: "unbounded"
        })
        assert.deepStrictEqual(
          answers.map(({ status }) => status),
          new Array(8).fill(200)
        )
        assert.strictEqual(made, 1)
      })
    )
  })

  it.live("answers 500 when the page cannot be made, says why in the log alone, and goes on", () => {
    const { lines, layer } = recordedLog()
    let broken = true
    const breaking = Effect.suspend(() => (broken ? Effect.die(new Error("a secret reason")) : page))
    return serving(breaking, ({ port }) =>
      Effect.gen(function* () {
        const { status, body } = yield* ask(port, "GET", "/metrics")
        assert.strictEqual(status, 500)
        assert.notInclude(body, "secret")
        assert.deepStrictEqual(lines, ["Error the metrics page could not be made"])
        broken = false
        const good = yield* ask(port, "GET", "/metrics").pipe(
          Effect.repeat({ until: (answer) => answer.status === 200 }),
          Effect.timeout("30 seconds")
        )
        assert.strictEqual(good.body, "one 1\ntwo 2\n")
      })
    ).pipe(Effect.provide(layer))
  })

  it.live("lets go of a reader that takes too long, and serves the others meanwhile", () => {
    const large = Effect.succeed([Buffer.alloc(32 * 2 ** 20, "x")])
    return serving(
      large,
      ({ port }) =>
        Effect.gen(function* () {
          const closed = yield* Deferred.make<void>()
          const begun = yield* Deferred.make<void>()
          const slow = connect(port, "127.0.0.1", () =>
            slow.write("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
          )
          slow.on("error", () => undefined)
          slow.on("close", () => Deferred.doneUnsafe(closed, Effect.void))
          slow.on("data", () => {
            Deferred.doneUnsafe(begun, Effect.void)
            slow.pause()
            setTimeout(() => slow.resume(), 20)
          })
          yield* Deferred.await(begun)
          assert.strictEqual((yield* ask(port, "HEAD", "/metrics")).status, 200)
          yield* Deferred.await(closed).pipe(Effect.timeout("30 seconds"))
          assert.isBelow(slow.bytesRead, 32 * 2 ** 20)
        }),
      { answerMs: 500 }
    )
  })

  it.live("takes a limited number of connections, and all of them again once they are closed", () =>
    serving(page, ({ port }) =>
      Effect.gen(function* () {
        const silent = yield* Effect.forEach(
          Array.from({ length: 40 }),
          () =>
            Effect.callback<Socket>((resume) => {
              const socket = connect(port, "127.0.0.1", () => resume(Effect.succeed(socket)))
              socket.on("error", () => undefined)
            }),
          { concurrency: "unbounded" }
        )
        const turnedAway = yield* Effect.callback<number>((resume) => {
          let count = 0
          for (const socket of silent) {
            socket.resume()
            socket.on("close", () => {
              count++
              if (count === 24) resume(Effect.succeed(count))
            })
          }
        }).pipe(Effect.timeout("30 seconds"))
        assert.strictEqual(turnedAway, 24)
        for (const socket of silent) socket.destroy()
        yield* ask(port, "GET", "/metrics").pipe(
          Effect.flatMap(({ status }) =>
            status === 200 ? Effect.void : Effect.fail(new Error(`${status}`))
          ),
          Effect.retry(Schedule.spaced("20 millis")),
          Effect.timeout("30 seconds")
        )
      })
    )
  )

  it.live("refuses what is no request, and a head without end", () =>
    serving(page, ({ port }) =>
      Effect.gen(function* () {
        assert.match(yield* send(port, "\x16\x03\x01\x02\x00garbage\r\n\r\n"), /^HTTP\/1\.1 400/u)
        const long = `GET /metrics HTTP/1.1\r\nHost: h\r\nx: ${"y".repeat(20_000)}\r\n\r\n`
        assert.match(yield* send(port, long), /^HTTP\/1\.1 431/u)
        assert.strictEqual((yield* ask(port, "GET", "/metrics")).status, 200)
      })
    )
  )

  it.live("fails by name of the configuration when its address is taken", () =>
    Effect.gen(function* () {
      const other = yield* Effect.acquireRelease(
        Effect.callback<ReturnType<typeof createServer>>((resume) => {
          const server = createServer().listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
        }),
        (server) => Effect.sync(() => server.close())
      )
      const address = other.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      const error = yield* Effect.flip(
        Effect.void.pipe(Effect.provide(layerMetricsPage({ address: "127.0.0.1", port })))
      )
      assert.strictEqual(
        error.message,
        `the metrics page cannot be served ([metrics] listen_address, port): 127.0.0.1 port ${port} cannot be listened on: another program listens there`
      )
    })
  )
})
