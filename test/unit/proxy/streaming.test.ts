import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import {
  appId,
  dial,
  eventually,
  listenRaw,
  openRequests,
  proxyTo,
  type Talk,
  writeUntilStuck
} from "./harness.ts"

const get = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"
const MIB = 1_048_576

/** A caller with a request open at an app, and the app's end of it. */
const connected = (request: string, timeouts = {}) =>
  Effect.gen(function* () {
    const app = yield* listenRaw()
    const { port, proxy } = yield* proxyTo(app.port, timeouts)
    const caller = yield* dial(port)
    caller.write(request)
    const connection = yield* app.connection(0)
    const head = yield* connection.head
    return { app, proxy, caller, connection, head, port }
  })

/** Bytes that are not the same anywhere, so that a lost or doubled piece shows. */
const noise = (length: number): Buffer => {
  const bytes = Buffer.alloc(length)
  let state = 12_345
  for (let at = 0; at + 4 <= length; at += 4) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    bytes.writeUInt32LE(state, at)
  }
  return bytes
}

const digest = (bytes: Buffer | string) =>
  createHash("sha256")
    .update(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes)
    .digest("hex")

/** Lets a paused connection read so many bytes, with a rest now and then, and gives their digest. */
const absorbed = (talk: Talk, length: number) =>
  Effect.gen(function* () {
    const hash = createHash("sha256")
    let seen = 0
    talk.absorb = (bytes) => {
      seen += bytes.length
      hash.update(bytes)
      if (Math.floor(seen / (5 * MIB)) === Math.floor((seen - bytes.length) / (5 * MIB))) return
      talk.socket.pause()
      setImmediate(() => talk.socket.resume())
    }
    talk.absorb(Buffer.from(talk.take(), "latin1"))
    talk.socket.resume()
    yield* talk.until(() => seen >= length, `${length} bytes`)
    return hash.digest("hex")
  })

describe("a body", () => {
  it.live("passes piece by piece in both directions, while the request is not complete", () =>
    Effect.gen(function* () {
      const { caller, connection } = yield* connected(
        "POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n"
      )
      connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
      yield* caller.head
      for (const word of ["one", "four!", "sixteen."]) {
        const chunk = `${word.length.toString(16)}\r\n${word}\r\n`
        caller.write(chunk)
        assert.strictEqual(yield* connection.through(`${word}\r\n`), chunk)
        connection.write(chunk)
        assert.strictEqual(yield* caller.through(`${word}\r\n`), chunk)
      }
      caller.write("0\r\n\r\n")
      assert.strictEqual(yield* connection.through("0\r\n\r\n"), "0\r\n\r\n")
      connection.write("0\r\n\r\n")
      assert.strictEqual(yield* caller.rest, "0\r\n\r\n")
    })
  )

  for (const framing of ["length", "chunked"] as const) {
    it.live(`of 9 MiB arrives whole, up and down, framed by ${framing}`, () =>
      Effect.gen(function* () {
        const content = noise(9 * MIB + 13)
        const field =
          framing === "length" ? `Content-Length: ${content.length}` : "Transfer-Encoding: chunked"
        const pieces: Array<Buffer> = []
        for (let at = 0; at < content.length; ) {
          const piece = content.subarray(at, at + 1 + ((at * 7) % 100_000))
          at += piece.length
          pieces.push(
            framing === "length"
              ? piece
              : Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")])
          )
        }
        const body = Buffer.concat([...pieces, Buffer.from(framing === "chunked" ? "0\r\n\r\n" : "")])
        const unframed = (text: string) => {
          if (framing === "length") return text
          let plain = ""
          for (let at = 0; ; ) {
            const line = text.indexOf("\r\n", at)
            const size = Number.parseInt(text.slice(at, line), 16)
            if (size === 0) return plain
            plain += text.slice(line + 2, line + 2 + size)
            at = line + 2 + size + 2
          }
        }
        const { caller, connection } = yield* connected(
          `PUT / HTTP/1.1\r\nHost: app.test\r\n${field}\r\n\r\n`
        )
        const whole = (talk: Talk) =>
          framing === "length" ? talk.text.length >= content.length : talk.text.endsWith("\r\n0\r\n\r\n")
        caller.write(body)
        yield* connection.until(whole)
        assert.strictEqual(digest(unframed(connection.take())), digest(content))
        connection.write(`HTTP/1.1 200 OK\r\n${field}\r\n\r\n`)
        connection.write(body)
        yield* caller.head
        yield* caller.until(whole)
        assert.strictEqual(digest(unframed(caller.take())), digest(content))
      })
    )
  }

  it.live("is not read faster than the caller takes it, and arrives whole all the same", () =>
    Effect.gen(function* () {
      const content = noise(64 * MIB)
      const { caller, connection } = yield* connected(get)
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${content.length}\r\n\r\n`)
      yield* caller.head
      caller.socket.pause()
      assert.isBelow(yield* writeUntilStuck(connection, content), content.length / 2)
      assert.strictEqual(yield* absorbed(caller, content.length), digest(content))
    })
  )

  it.live("is not read faster than the app takes it, and arrives whole all the same", () =>
    Effect.gen(function* () {
      const content = noise(64 * MIB)
      const { caller, connection } = yield* connected(
        `PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: ${content.length}\r\n\r\n`
      )
      connection.socket.pause()
      assert.isBelow(yield* writeUntilStuck(caller, content), content.length / 2)
      assert.strictEqual(yield* absorbed(connection, content.length), digest(content))
    })
  )
})

describe("a stream of middling pieces behind a large one", () => {
  it.live("arrives whole at a caller that has stopped reading for a while", () =>
    Effect.gen(function* () {
      const content = noise(24 * MIB)
      const { caller, connection } = yield* connected(get)
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${content.length}\r\n\r\n`)
      yield* caller.head
      connection.write(content.subarray(0, MIB))
      yield* caller.until((talk) => talk.bytesSeen > MIB)
      caller.socket.pause()
      // a piece for each read of the proxy, smaller than what makes it stop reading
      const piece = 40_000
      for (let at = MIB; at < content.length; at += piece) {
        connection.write(content.subarray(at, at + piece))
        yield* Effect.sleep(1)
      }
      assert.isAbove(connection.socket.writableLength, 0)
      assert.strictEqual(yield* absorbed(caller, content.length), digest(content))
    })
  )
})

describe("an answer that comes early", () => {
  it.live("reaches the caller, whose connection ends because the rest of the body is not wanted", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* connected(
        `PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: ${8 * MIB}\r\n\r\nabc`
      )
      yield* connection.through("abc")
      connection.write("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
      assert.match(yield* caller.through("no"), /^HTTP\/1\.1 413 [\s\S]*connection: close\r\n/u)
      caller.write(Buffer.alloc(MIB))
      yield* caller.rest
      assert.strictEqual(yield* openRequests(proxy), 0)
    })
  )

  it.live("is heard even when the app has hung up on the body already", () =>
    Effect.gen(function* () {
      const { caller, connection } = yield* connected(
        `PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: ${64 * MIB}\r\n\r\n`
      )
      connection.socket.pause()
      const piece = Buffer.alloc(MIB, "x")
      for (let sent = 0; sent < 8; sent++) caller.write(piece)
      connection.socket.end("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno", () =>
        connection.socket.destroy()
      )
      assert.match(yield* caller.through("no"), /^HTTP\/1\.1 413 /u)
    })
  )
})

describe("a connection that is closed on one side", () => {
  it.live("by a caller that has said all still brings it the answer", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* connected(get)
      caller.socket.end()
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
      yield* caller.head
      connection.write("hello")
      assert.strictEqual(yield* caller.rest, "hello")
      yield* caller.until((talk) => talk.closed)
      assert.strictEqual(yield* openRequests(proxy), 0)
    })
  )

  it.live("by a caller that has said all brings it the answer however long that takes", () =>
    Effect.gen(function* () {
      const { caller, connection } = yield* connected(get, { halfClosed: 50, probe: 50, sweep: 20 })
      caller.socket.end()
      for (let asked = 0; asked < 4; asked++) yield* caller.through("HTTP/1.1 100 Continue\r\n\r\n")
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
      assert.match(yield* caller.rest, /HTTP\/1\.1 200 OK.*ok$/su)
    })
  )

  it.live("by a caller that is gone altogether is noticed while there is no answer", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* connected(get, { probe: 50, sweep: 20 })
      caller.socket.destroy()
      yield* connection.until((talk) => talk.ended)
      assert.strictEqual(yield* openRequests(proxy), 0)
    })
  )

  it.live("by a caller that is gone altogether is noticed when the app does not take its body", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* connected(
        "PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 99999999\r\n\r\n",
        { probe: 50, sweep: 20 }
      )
      connection.socket.pause()
      yield* writeUntilStuck(caller, Buffer.alloc(50_000_000))
      caller.socket.resetAndDestroy()
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  it.live("by a caller of HTTP/1.0, or within its answer, is given up when nothing comes for long", () =>
    Effect.gen(function* () {
      for (const [request, answer] of [
        ["GET / HTTP/1.0\r\nHost: app.test\r\n\r\n", ""],
        [get, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"]
      ] as const) {
        const { caller, connection, proxy } = yield* connected(request, { halfClosed: 50, sweep: 20 })
        connection.write(answer)
        if (answer !== "") yield* caller.head
        caller.socket.end()
        yield* connection.until((talk) => talk.ended)
        assert.strictEqual(yield* openRequests(proxy), 0)
      }
    })
  )

  it.live("in the middle of a request's body is answered with 400, and the app is told", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* connected(
        "PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nab"
      )
      caller.socket.end()
      assert.match(yield* caller.rest, /^HTTP\/1\.1 400 /u)
      yield* connection.until((talk) => talk.ended)
      assert.strictEqual(yield* openRequests(proxy), 0)
    })
  )

  it.live("in the middle of a request's head is closed without a word", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      caller.socket.end("GET / HTTP/1.1\r\nHo")
      assert.strictEqual(yield* caller.rest, "")
    })
  )
})

describe("a connection that breaks", () => {
  it.live("at the caller's end closes the one to the app", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* connected(get)
      assert.strictEqual(yield* openRequests(proxy), 1)
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello")
      yield* caller.head
      caller.socket.resetAndDestroy()
      yield* connection.until((talk) => talk.ended)
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  for (const [what, head] of [
    ["of a length", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello"],
    ["in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"],
    ["until the end", "HTTP/1.0 200 OK\r\n\r\nhello"]
  ] as const) {
    it.live(
      `in the middle of an answer ${what} breaks the caller's, which so knows that something is missing`,
      () =>
        Effect.gen(function* () {
          const { caller, connection, proxy } = yield* connected("GET / HTTP/1.0\r\nHost: app.test\r\n\r\n")
          connection.write(head)
          yield* caller.through("hello")
          connection.socket.resetAndDestroy()
          yield* caller.until((talk) => talk.closed)
          assert.strictEqual(caller.errorCode, "ECONNRESET")
          assert.strictEqual(yield* openRequests(proxy), 0)
          assert.strictEqual((yield* proxy.traffic).outcomes.served, 1)
        })
    )
  }

  it.live("in the middle of an answer's head is 502", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* connected(get)
      connection.write("HTTP/1.1 200 OK\r\nConte")
      connection.socket.end()
      assert.match(yield* caller.rest, /^HTTP\/1\.1 502 /u)
      const { outcomes, apps } = yield* proxy.traffic
      assert.strictEqual(outcomes.unreachable, 1)
      assert.strictEqual(apps.get(appId)?.open, 0)
    })
  )
})

describe("the count of open requests", () => {
  it.live("is right while many come and go, end early or break", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw((talk, index) => {
        talk.socket.once("data", () => {
          if (index % 4 === 0)
            talk.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
          else if (index % 4 === 1) talk.socket.destroy()
          else if (index % 4 === 2) talk.write("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\nok")
        })
      })
      const { port, proxy } = yield* proxyTo(app.port, { halfClosed: 50, sweep: 20 })
      const callers = yield* Effect.forEach(Array.from({ length: 40 }), () => dial(port))
      for (const caller of callers) caller.write(get)
      // of each four: one is answered, one is 502, one hangs in its answer, one before it
      yield* eventually(openRequests(proxy), (open) => open === 20)
      yield* eventually(
        proxy.traffic,
        ({ outcomes }) => outcomes.served === 20 && outcomes.unreachable === 10
      )
      for (const [index, caller] of callers.entries()) {
        if (index < 20) caller.socket.destroy()
        else caller.socket.resetAndDestroy()
      }
      yield* eventually(openRequests(proxy), (open) => open === 0)
      const traffic = (yield* proxy.traffic).apps.get(appId)
      assert.strictEqual(traffic?.routed, 40)
      assert.deepStrictEqual(traffic?.answers, { 1: 0, 2: 20, 3: 0, 4: 0, 5: 0 })
    })
  )
})
