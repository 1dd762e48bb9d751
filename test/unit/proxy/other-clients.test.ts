import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { type RawData, WebSocket as WsClient } from "ws"
import type { UpTarget } from "../../../src/services/Proxy.ts"
import { makeCertificate } from "./certificates.ts"
import { appId, eventually, freePort, openRequests, startProxy } from "./harness.ts"
import { FILE, nodeApp, sha256 } from "./node-app.ts"
import { authority, folder, stored } from "./tls-harness.ts"
import { run, withTool } from "./tools.ts"

/** A proxy in front of Node's own server, plain and under TLS. */
const stage = Effect.gen(function* () {
  const app = yield* nodeApp
  const path = yield* folder
  const ca = join(path, "ca.crt")
  writeFileSync(ca, authority.certificate)
  const tls = yield* stored(makeCertificate(["app.test"], authority))
  const plain = yield* startProxy()
  const secure = yield* startProxy({}, { tls })
  const target: UpTarget = { kind: "up", host: "127.0.0.1", port: app.port }
  for (const { proxy } of [plain, secure]) {
    yield* proxy.setRoute({ appId, hostnames: ["app.test"], target })
  }
  return { plain, secure, target, path, ca }
})

const JSON_LINE = /\{"method".*\}/u

describe("curl", () => {
  const curl = (
    { plain, secure, ca }: Effect.Success<typeof stage>,
    version: "--http1.0" | "--http1.1" | "--http2",
    scheme: "http" | "https",
    path: string,
    ...more: ReadonlyArray<string>
  ) => {
    const { port } = scheme === "http" ? plain : secure
    const common = ["-sS", "--cacert", ca, "--connect-to", `app.test:${port}:127.0.0.1:${port}`]
    return run("curl", [...common, version, ...more, `${scheme}://app.test:${port}${path}`])
  }
  const ways = [
    ["--http1.0", "http"],
    ["--http1.1", "http"],
    ["--http1.0", "https"],
    ["--http1.1", "https"],
    ["--http2", "https"]
  ] as const

  for (const [version, scheme] of ways) {
    withTool("curl")(`gets, sends, resumes and asks for parts with ${version} over ${scheme}`, () =>
      Effect.gen(function* () {
        const at = yield* stage
        const got = yield* curl(at, version, scheme, "/a?b=c")
        assert.strictEqual(got.code, 0, got.stderr)
        assert.include(JSON.parse(got.stdout), { method: "GET", url: "/a?b=c", httpVersion: "1.1" })
        assert.include(JSON.parse(got.stdout).headers, { "x-forwarded-proto": scheme })

        const whole = yield* curl(at, version, scheme, "/file", "-o", join(at.path, "whole"))
        assert.strictEqual(whole.code, 0, whole.stderr)
        assert.strictEqual(sha256(readFileSync(join(at.path, "whole"))), sha256(FILE))
        const part = yield* curl(at, version, scheme, "/file", "-r", "100-299", "-i")
        assert.match(part.stdout, /content-range: bytes 100-299\/1000000/iu)
        assert.isTrue(part.stdout.endsWith(FILE.subarray(100, 300).toString("latin1")))

        const file = join(at.path, "upload")
        writeFileSync(file, FILE)
        const sent = yield* curl(at, version, scheme, "/up", "-T", file, "-H", "Expect: 100-continue")
        assert.strictEqual(sent.code, 0, sent.stderr)
        assert.include(JSON.parse(sent.stdout), { method: "PUT", bytes: FILE.length, sha256: sha256(FILE) })
        const posted = yield* curl(at, version, scheme, "/form", "-d", "a=b", "-d", "c=d")
        assert.include(JSON.parse(posted.stdout), { method: "POST", bytes: 7 })

        const head = yield* curl(at, version, scheme, "/file", "-I")
        assert.strictEqual(head.code, 0, head.stderr)
        assert.match(head.stdout, /^HTTP\/[\d.]+ 200/u)
        const kept = yield* curl(at, version, scheme, "/[1-20]", "-o", "/dev/null", "-w", "%{http_code} ")
        assert.strictEqual(kept.stdout, "200 ".repeat(20))
      })
    )
  }

  withTool("curl")("sends what it reads without knowing its length, and gets trailers", () =>
    Effect.gen(function* () {
      const at = yield* stage
      for (const [version, scheme] of [
        ["--http1.1", "http"],
        ["--http2", "https"]
      ] as const) {
        const { port } = scheme === "http" ? at.plain : at.secure
        const sent = yield* run(
          "curl",
          [
            "-sS",
            "--cacert",
            at.ca,
            "--connect-to",
            `app.test:${port}:127.0.0.1:${port}`,
            version,
            "-T",
            "-",
            `${scheme}://app.test:${port}/up`
          ],
          FILE
        )
        assert.include(JSON.parse(sent.stdout), { bytes: FILE.length, sha256: sha256(FILE) })
        const trailers = yield* curl(at, version, scheme, "/trailers", "-i")
        assert.match(trailers.stdout, /x-sum: 5/iu)
      }
    })
  )

  withTool("curl")("is told what is wrong", () =>
    Effect.gen(function* () {
      const at = yield* stage
      const other = yield* curl(at, "--http2", "https", "/", "-H", "Host: other.test", "-w", "%{http_code}")
      assert.match(other.stdout, /421$/u)
      const unknown = yield* curl(
        at,
        "--http1.1",
        "http",
        "/",
        "-H",
        "Host: other.test",
        "-w",
        "%{http_code}"
      )
      assert.match(unknown.stdout, /404$/u)
    })
  )
})

describe("nghttp and h2load", () => {
  withTool("nghttp")("get and send over HTTP/2", () =>
    Effect.gen(function* () {
      const { secure, path } = yield* stage
      const file = join(path, "upload")
      writeFileSync(file, FILE)
      const common = ["--no-verify-peer", "-H:authority: app.test"]
      const url = `https://127.0.0.1:${secure.port}/x`
      const got = yield* run("nghttp", [...common, url])
      assert.include(JSON.parse(JSON_LINE.exec(got.stdout)?.[0] ?? "{}"), { method: "GET", url: "/x" })
      const sent = yield* run("nghttp", [...common, "-d", file, url])
      assert.include(JSON.parse(JSON_LINE.exec(sent.stdout)?.[0] ?? "{}"), {
        bytes: FILE.length,
        sha256: sha256(FILE)
      })
      const trailer = yield* run("nghttp", [...common, "-v", "--trailer", "x-t: 1", "-d", file, url])
      assert.include(JSON.parse(JSON_LINE.exec(trailer.stdout)?.[0] ?? "{}"), { bytes: FILE.length })
    })
  )

  withTool("h2load")("get every one of many requests answered", () =>
    Effect.gen(function* () {
      const { secure } = yield* stage
      const { stdout } = yield* run("h2load", [
        "-n2000",
        "-c10",
        "-m20",
        `--connect-to=127.0.0.1:${secure.port}`,
        `https://app.test:${secure.port}/`
      ])
      assert.match(stdout, /2000 succeeded, 0 failed, 0 errored, 0 timeout/u)
      yield* eventually(openRequests(secure.proxy), (open) => open === 0)
    })
  )
})

describe("openssl", () => {
  withTool("openssl")("agrees on HTTP/2 or HTTP/1.1, and is answered", () =>
    Effect.gen(function* () {
      const { secure, ca } = yield* stage
      const common = [
        "s_client",
        "-connect",
        `127.0.0.1:${secure.port}`,
        "-servername",
        "app.test",
        "-CAfile",
        ca
      ]
      const chosen = yield* run("openssl", [...common, "-alpn", "h2,http/1.1", "-verify_return_error"])
      assert.include(chosen.stdout, "ALPN protocol: h2")
      assert.include(chosen.stdout, "Verify return code: 0 (ok)")
      for (const version of ["-tls1_2", "-tls1_3"]) {
        const got = yield* run(
          "openssl",
          [...common, version, "-quiet", "-ign_eof"],
          "GET /s HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n"
        )
        assert.match(got.stdout, /^HTTP\/1\.1 200 OK/u, got.stderr)
      }
      assert.include((yield* run("openssl", [...common, "-tls1_1"])).stdout, "Cipher is (NONE)")
    })
  )
})

describe("WebSockets", () => {
  /** Sends texts and bytes, and gives what came back. */
  const conversation = (socket: WsClient) =>
    Effect.callback<ReadonlyArray<string>, Error>((resume) => {
      const seen: Array<string> = []
      socket.on("open", () => {
        socket.send("hello")
        socket.send(Buffer.alloc(300_000, "x"))
        socket.send("bye")
      })
      socket.on("message", (data: RawData) => {
        const bytes = data as Buffer
        seen.push(bytes.length > 100 ? `${bytes.length} bytes` : bytes.toString())
        if (seen.at(-1) === "bye") socket.close(1000)
      })
      socket.on("close", () => resume(Effect.succeed(seen)))
      socket.on("error", (error) => resume(Effect.fail(error)))
    })
  const expected = ["hello", "300000 bytes", "bye"]

  it.live("of the ws package talk with an app, plain and under TLS", () =>
    Effect.gen(function* () {
      const { plain, secure } = yield* stage
      const options = { headers: { host: "app.test" }, ca: authority.certificate, servername: "app.test" }
      for (const [url, proxy] of [
        [`ws://127.0.0.1:${plain.port}/`, plain.proxy],
        [`wss://127.0.0.1:${secure.port}/`, secure.proxy]
      ] as const) {
        assert.deepStrictEqual(yield* conversation(new WsClient(url, options)), expected)
        yield* eventually(openRequests(proxy), (open) => open === 0)
      }
    })
  )

  it.live("of the ws package are opened at an app that sleeps", () =>
    Effect.gen(function* () {
      const { plain, target } = yield* stage
      const woken = yield* Deferred.make<UpTarget>()
      yield* plain.proxy.setRoute({
        appId,
        hostnames: ["app.test"],
        target: { kind: "asleep", wake: Deferred.await(woken) }
      })
      const talk = yield* Effect.forkScoped(
        conversation(new WsClient(`ws://127.0.0.1:${plain.port}/`, { headers: { host: "app.test" } }))
      )
      yield* eventually(plain.proxy.traffic, ({ apps }) => apps.get(appId)?.held === 1)
      yield* Deferred.succeed(woken, target)
      assert.deepStrictEqual(yield* Fiber.join(talk), expected)
    })
  )

  it.live("of Node itself talk with an app", () =>
    Effect.gen(function* () {
      const { plain, target } = yield* stage
      const hostPort = yield* freePort
      yield* plain.proxy.setRoute({ appId, hostnames: [], target, hostPort })
      const answer = yield* Effect.callback<string>((resume) => {
        const socket = new WebSocket(`ws://127.0.0.1:${hostPort}/`)
        socket.addEventListener("open", () => socket.send("hello"))
        socket.addEventListener("message", ({ data }) => {
          socket.close()
          resume(Effect.succeed(String(data)))
        })
        socket.addEventListener("error", () => resume(Effect.succeed("an error")))
      })
      assert.strictEqual(answer, "hello")
      yield* eventually(openRequests(plain.proxy), (open) => open === 0)
    })
  )
})

describe("a load of many connections", () => {
  withTool("wrk")("of wrk is answered to the last request", () =>
    Effect.gen(function* () {
      const { plain, target } = yield* stage
      const hostPort = yield* freePort
      yield* plain.proxy.setRoute({ appId, hostnames: [], target, hostPort })
      const { stdout } = yield* run("wrk", ["-t1", "-c64", "-d2s", `http://127.0.0.1:${hostPort}/`])
      assert.match(stdout, /Requests\/sec: +\d/u)
      assert.notMatch(stdout, /Non-2xx|Socket errors/u)
      yield* eventually(openRequests(plain.proxy), (open) => open === 0)
    })
  )

  withTool("ab")("of ab is answered in HTTP/1.0, over connections that are kept and that are not", () =>
    Effect.gen(function* () {
      const { plain, target } = yield* stage
      const hostPort = yield* freePort
      yield* plain.proxy.setRoute({ appId, hostnames: [], target, hostPort })
      const url = `http://127.0.0.1:${hostPort}/file`
      for (const kept of [["-k"], []]) {
        const { stdout } = yield* run("ab", ["-q", "-n", "400", "-c", "20", ...kept, url])
        assert.match(stdout, /Complete requests: +400\n/u)
        assert.match(stdout, /Failed requests: +0\n/u)
        assert.notMatch(stdout, /Non-2xx/u)
        assert.match(stdout, /Document Length: +1000000 bytes/u)
        if (kept.length > 0) assert.match(stdout, /Keep-Alive requests: +400\n/u)
      }
      yield* eventually(openRequests(plain.proxy), (open) => open === 0)
    })
  )
})
