import { writeFileSync } from "node:fs"
import { createSecureContext } from "node:tls"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Scope } from "effect"
import { layerProxy } from "../../../layers/proxy/layer.ts"
import { ProxyError } from "../../../src/services/Proxy.ts"
import { makeAuthority, makeCertificate } from "./certificates.ts"
import { dial, eventually, openRequests, startProxy, writeUntilStuck } from "./harness.ts"
import {
  authority,
  dialSecure,
  folder,
  handshake,
  logged,
  NAMES,
  secureProxy,
  stored
} from "./tls-harness.ts"

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
const get = (host: string) => `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`

describe("HTTP/1.1 under TLS", () => {
  it.live("reaches the app, which is told that it was under TLS", () =>
    Effect.gen(function* () {
      const { app, port, proxy } = yield* secureProxy()
      const caller = yield* dialSecure(port)
      for (const round of [1, 2, 3]) {
        caller.write(get("app.test"))
        const connection = yield* app.connection(0)
        const head = yield* connection.head
        assert.include(head, "\r\nx-forwarded-proto: https\r\n")
        assert.include(head, "\r\nx-forwarded-for: 127.0.0.1\r\n")
        connection.write(ok)
        assert.match(yield* caller.through("ok"), /^HTTP\/1\.1 200 OK\r\n/u, `round ${round}`)
      }
      const { handshakes, outcomes } = yield* proxy.traffic
      assert.deepStrictEqual(handshakes, { completed: 1, failed: 0, timedOut: 0 })
      assert.strictEqual(outcomes.served, 3)
    })
  )

  it.live(
    "is spoken with who names no protocol, HTTP/2 with who names both, nothing with who names another",
    () =>
      Effect.gen(function* () {
        const { port } = yield* secureProxy()
        const chosen = (ALPNProtocols?: Array<string>) =>
          Effect.gen(function* () {
            const talk = yield* dialSecure(port, ALPNProtocols === undefined ? {} : { ALPNProtocols })
            yield* Effect.callback<void>((resume) => {
              if (talk.closed) resume(Effect.void)
              talk.socket.once("secureConnect", () => resume(Effect.void))
              talk.socket.once("close", () => resume(Effect.void))
            })
            return talk.closed ? talk.errorCode : talk.socket.alpnProtocol
          })
        assert.strictEqual(yield* chosen(), false)
        assert.strictEqual(yield* chosen(["http/1.1"]), "http/1.1")
        assert.strictEqual(yield* chosen(["http/1.1", "h2"]), "h2")
        assert.match(String(yield* chosen(["spdy/3"])), /ALERT|ECONNRESET/u)
      })
  )

  it.live.each([
    { end: "nothing more", last: "", answer: /^$/u },
    { end: "half a head", last: "GET / HTTP/1.1\r\nHo", answer: /^$/u },
    {
      end: "half a body",
      last: "PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 9\r\n\r\nhalf",
      answer: /^HTTP\/1\.1 400 /u
    }
  ])("answers all that a caller has asked in one go before its last word, and $end", ({ last, answer }) =>
    Effect.gen(function* () {
      const { app, port } = yield* secureProxy()
      const caller = yield* dialSecure(port)
      caller.socket.end(`${get("app.test").repeat(3)}${last}`)
      for (let request = 0; request < 3; request++) {
        const connection = yield* app.connection(0)
        yield* connection.head
        connection.write(ok)
      }
      const answers = (yield* caller.rest).split("ok")
      assert.strictEqual(answers.length, 4)
      for (const each of answers.slice(0, 3)) assert.match(each, /^HTTP\/1\.1 200 OK\r\n/u)
      assert.match(answers[3] ?? "", answer)
    })
  )

  it.live("is as strict as without", () =>
    Effect.gen(function* () {
      const { app, port } = yield* secureProxy()
      for (const request of [
        "GET / HTTP/1.1\nHost: app.test\n\n",
        "GET / HTTP/1.1\r\nHost: app.test\r\nHost: app.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : app.test\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
      ]) {
        const caller = yield* dialSecure(port)
        caller.write(request)
        assert.match(yield* caller.rest, /^HTTP\/1\.1 (?:400|505) .*connection: close/su)
      }
      assert.strictEqual(app.connections.length, 0)
    })
  )

  it.live("keeps to the speed of who reads slower, both ways", () =>
    Effect.gen(function* () {
      const { app, port } = yield* secureProxy()
      const caller = yield* dialSecure(port)
      const body = Buffer.alloc(33_554_432, "0123456789abcdef")
      caller.write(`PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: ${body.length}\r\n\r\n`)
      const connection = yield* app.connection(0)
      yield* connection.head
      connection.socket.pause()
      assert.isBelow(yield* writeUntilStuck(caller, body), body.length / 2)
      let seen = connection.take().length
      connection.absorb = (bytes) => {
        seen += bytes.length
      }
      connection.socket.resume()
      yield* connection.until(() => seen === body.length, "the whole request")

      caller.socket.pause()
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n`)
      assert.isBelow(yield* writeUntilStuck(connection, body), body.length / 2)
      caller.absorb = () => undefined
      caller.socket.resume()
      yield* caller.until((talk) => talk.bytesSeen > body.length, "the whole answer")
    })
  )

  it.live("answers a caller that has closed its sending side", () =>
    Effect.gen(function* () {
      const { app, port } = yield* secureProxy()
      const caller = yield* dialSecure(port)
      caller.socket.end(get("app.test"))
      const connection = yield* app.connection(0)
      yield* connection.head
      connection.write(ok)
      assert.match(yield* caller.rest, /^HTTP\/1\.1 200 OK.*ok$/su)
    })
  )

  it.live("carries upgraded connections", () =>
    Effect.gen(function* () {
      const { app, port, proxy } = yield* secureProxy()
      const caller = yield* dialSecure(port)
      caller.write("GET / HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly")
      const connection = yield* app.connection(0)
      yield* connection.head
      connection.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nfirst")
      yield* caller.through("first")
      yield* connection.through("early")
      caller.socket.end("bye")
      assert.strictEqual(yield* connection.rest, "bye")
      connection.socket.end("good night")
      assert.strictEqual(yield* caller.rest, "good night")
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  it.live("lets a caller see that an answer has broken off", () =>
    Effect.gen(function* () {
      const { app, port, proxy } = yield* secureProxy()
      const caller = yield* dialSecure(port)
      caller.write(get("app.test"))
      const connection = yield* app.connection(0)
      yield* connection.head
      connection.write("HTTP/1.1 200 OK\r\n\r\nuntil the en")
      yield* caller.through("until the en")
      connection.socket.resetAndDestroy()
      yield* caller.until(({ closed, ended }) => closed || ended)
      assert.notInclude(caller.text, "0\r\n\r\n")
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  it.live("loses nothing when a caller leaves in the middle", () =>
    Effect.gen(function* () {
      const { app, port, proxy } = yield* secureProxy()
      for (const index of [0, 1]) {
        const caller = yield* dialSecure(port)
        caller.write("PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 9\r\n\r\nabc")
        const connection = yield* app.connection(index)
        yield* connection.through("abc")
        caller.socket.destroy()
        yield* connection.until(({ closed, ended }) => closed || ended)
      }
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )
})

describe("a hostname that TLS was not begun with", () => {
  it.live("is answered with 421, also later on the same connection, and counted", () =>
    Effect.gen(function* () {
      const { app, port, proxy } = yield* secureProxy()
      const caller = yield* dialSecure(port)
      caller.write(get("app.test"))
      const connection = yield* app.connection(0)
      yield* connection.head
      connection.write(ok)
      yield* caller.through("ok")
      caller.write(get("other.test"))
      assert.match(yield* caller.rest, /^HTTP\/1\.1 421 Misdirected Request\r\n/u)
      const unknown = yield* dialSecure(port, { servername: "unknown.test" })
      unknown.write(get("app.test"))
      assert.match(yield* unknown.rest, /^HTTP\/1\.1 421 /u)
      assert.include((yield* proxy.traffic).outcomes, { wrongHost: 2, served: 1, noSuchHost: 0 })
    })
  )

  it.live(
    "is compared without its case, its final dot and its port, and not at all when TLS was begun without a name",
    () =>
      Effect.gen(function* () {
        const { app, port } = yield* secureProxy()
        for (const [index, [servername, host]] of (
          [
            ["App.TEST", "app.test"],
            ["app.test", "APP.Test:8443"],
            ["app.test", "app.test.:8443"],
            ["app.test.", "app.test"],
            ["", "app.test"],
            ["", "other.test"]
          ] as const
        ).entries()) {
          const caller = yield* dialSecure(port, { servername })
          caller.write(get(host))
          const connection = yield* app.connection(index)
          yield* connection.head
          connection.write(`${ok}`)
          assert.match(yield* caller.through("ok"), /^HTTP\/1\.1 200 /u, `${servername} ${host}`)
          connection.socket.end()
          caller.socket.destroy()
        }
      })
  )
})

describe("a TLS handshake", () => {
  it.live("fails without a certificate of the clients' authority where one is asked for", () =>
    Effect.gen(function* () {
      const clients = makeAuthority("the clients' authority")
      const { port, proxy } = yield* secureProxy({ clients })
      const mine = makeCertificate(["me"], clients)
      const stranger = makeCertificate(["me"], makeAuthority(clients.name))
      const show = ({ certificate, key }: typeof mine) => ({ cert: certificate, key })
      for (const maxVersion of ["TLSv1.2", "TLSv1.3"] as const) {
        assert.strictEqual(yield* handshake(port, { maxVersion }), "failed")
        assert.strictEqual(yield* handshake(port, { maxVersion, ...show(stranger) }), "failed")
        assert.strictEqual(yield* handshake(port, { maxVersion, ...show(makeCertificate(["me"])) }), "failed")
        assert.strictEqual(yield* handshake(port, { maxVersion, ...show(mine) }), "completed")
      }
      const { handshakes } = yield* eventually(proxy.traffic, ({ handshakes: { failed } }) => failed === 6)
      assert.deepStrictEqual(handshakes, { completed: 2, failed: 6, timedOut: 0 })
    })
  )

  it.live("asks no client for a certificate where no authority is named", () =>
    Effect.gen(function* () {
      const { port } = yield* secureProxy()
      assert.strictEqual(yield* handshake(port), "completed")
    })
  )

  it.live("that is not finished in time closes its connection, whatever is sent meanwhile", () =>
    Effect.gen(function* () {
      const { port, proxy } = yield* secureProxy({ timeouts: { handshake: 300 } })
      const silent = yield* dial(port)
      const slow = yield* dial(port)
      slow.write(Buffer.from("16030100ff", "hex"))
      yield* silent.until(({ ended, closed }) => ended || closed)
      yield* slow.until(({ ended, closed }) => ended || closed)
      const { handshakes } = yield* proxy.traffic
      assert.deepStrictEqual(handshakes, { completed: 0, failed: 0, timedOut: 2 })
    })
  )

  it.live("is not begun by plain HTTP, noise or silence that ends", () =>
    Effect.gen(function* () {
      const { port, proxy } = yield* secureProxy()
      for (const bytes of [get("app.test"), "\0\x01\x02noise", ""]) {
        const caller = yield* dial(port)
        caller.socket.end(bytes, "latin1")
        yield* caller.until(({ ended, closed }) => ended || closed)
        assert.notInclude(caller.text, "HTTP")
      }
      yield* eventually(proxy.traffic, ({ handshakes }) => handshakes.failed === 3)
    })
  )

  it.live("does not keep the proxy from ending", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { port } = yield* Scope.provide(secureProxy(), scope)
      const begun = yield* dial(port)
      const done = yield* dialSecure(port)
      done.write("GET ")
      yield* begun.until(({ socket }) => !socket.connecting)
      yield* Scope.close(scope, Exit.void)
      yield* begun.until(({ closed, ended }) => closed || ended)
      yield* done.until(({ closed, ended }) => closed || ended)
    })
  )

  it.live("of an older version than TLS 1.2 fails", () =>
    Effect.gen(function* () {
      const { port } = yield* secureProxy()
      const old = { minVersion: "TLSv1.1", maxVersion: "TLSv1.1", ciphers: "ALL@SECLEVEL=0" } as const
      assert.doesNotThrow(() => createSecureContext(old))
      assert.strictEqual(yield* handshake(port, old), "failed")
    })
  )
})

describe("a certificate that cannot be used", () => {
  const good = makeCertificate(NAMES, authority)
  const cut = (pem: string) => pem.slice(0, pem.length / 2)
  const encrypted = `-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n`
  const cases: ReadonlyArray<
    readonly [
      what: string,
      replaced: "certificate" | "key" | "clientCa",
      text: string | undefined,
      says: RegExp
    ]
  > = [
    [
      "a certificate that is not there",
      "certificate",
      undefined,
      /tls\.certificate cannot be used: .*does not exist/u
    ],
    ["an empty certificate", "certificate", "", /tls\.certificate .*holds no certificate/u],
    [
      "a certificate that breaks off",
      "certificate",
      cut(good.certificate),
      /begins 1 certificates, but ends only 0/u
    ],
    [
      "a chain whose second part is broken",
      "certificate",
      `${good.certificate}-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n`,
      /cannot be read at its certificate 2/u
    ],
    ["a key that is not there", "key", undefined, /tls\.key cannot be used: .*does not exist/u],
    ["a file without a key", "key", good.certificate, /tls\.key .*holds no private key/u],
    ["a key that breaks off", "key", cut(good.key), /tls\.key .*holds a key that cannot be read/u],
    ["an encrypted key", "key", encrypted, /without a passphrase/u],
    [
      "the key of another certificate",
      "key",
      makeCertificate(["x"]).key,
      /tls\.key .*does not belong to the first certificate/u
    ],
    [
      "an authority that is not there",
      "clientCa",
      undefined,
      /client_ca\.certificate cannot be used: .*does not exist/u
    ],
    ["an authority that is none", "clientCa", good.key, /client_ca\.certificate .*holds no certificate/u],
    [
      "a pool of authorities of which one breaks off",
      "clientCa",
      authority.certificate + cut(authority.certificate),
      /client_ca\.certificate .*begins 2 certificates, but ends only 1/u
    ]
  ]
  for (const [what, replaced, text, says] of cases) {
    it.live(`${what}: the proxy does not start, and says why`, () =>
      Effect.gen(function* () {
        const path = yield* folder
        const files = { ...(yield* stored(good)), clientCa: `${path}/ca.crt` }
        writeFileSync(files.clientCa, authority.certificate)
        files[replaced] = `${path}/replaced.pem`
        if (text !== undefined) writeFileSync(files[replaced], text)
        const error = yield* Effect.flip(
          Layer.build(layerProxy({ listen: { address: "127.0.0.1", port: 0 }, tls: files }))
        )
        assert.instanceOf(error, ProxyError)
        assert.match(error.message, says)
        assert.include(error.message, files[replaced])
        assert.notInclude(error.message, good.key.split("\n")[1] ?? "")
      })
    )
  }

  it.live("because it has run out is served all the same, and said", () =>
    Effect.gen(function* () {
      const { lines, layer: logger } = logged()
      const tls = yield* stored(
        makeCertificate(NAMES, authority, { validUntil: new Date(Date.now() - 1000) })
      )
      const { port } = yield* startProxy({}, { tls }).pipe(Effect.provide(logger))
      assert.isTrue(
        lines.some((line) => /^Error the proxy's certificate has run out: DNS:app\.test/u.test(line))
      )
      assert.strictEqual(yield* handshake(port, { rejectUnauthorized: false }), "completed")
    })
  )
})
