import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type Issued, makeAuthority, makeCertificate } from "./certificates.ts"
import { eventually, startProxy } from "./harness.ts"
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

const replace = (file: string, text: string) => {
  writeFileSync(`${file}.new`, text)
  renameSync(`${file}.new`, file)
}

const replaceBoth = (files: { certificate: string; key: string }, { certificate, key }: Issued) => {
  replace(files.certificate, certificate)
  replace(files.key, key)
}

/** The serial number of the certificate that a new connection is shown. */
const shown = (port: number) =>
  Effect.scoped(
    Effect.gen(function* () {
      const talk = yield* dialSecure(port)
      return yield* Effect.callback<string>((resume) => {
        talk.socket.once("secureConnect", () =>
          resume(Effect.succeed(talk.socket.getPeerCertificate().serialNumber))
        )
        talk.socket.once("close", () => resume(Effect.succeed("closed")))
      })
    })
  )

const renewed = (port: number, from: string) => eventually(shown(port), (serial) => serial !== from)

describe("a certificate whose files are replaced", () => {
  it.live("is taken up without a restart, and open connections go on", () =>
    Effect.gen(function* () {
      const { app, port, files } = yield* secureProxy()
      const first = yield* shown(port)
      const caller = yield* dialSecure(port)
      caller.write("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")
      const connection = yield* app.connection(0)
      yield* connection.head
      replaceBoth(files, makeCertificate(NAMES, authority))
      const second = yield* renewed(port, first)
      replaceBoth(files, makeCertificate(NAMES, authority))
      yield* renewed(port, second)
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
      yield* caller.through("ok")
    })
  )

  it.live("is taken up when its directory's link is turned to another", () =>
    Effect.gen(function* () {
      const root = yield* folder
      const version = (name: string) => {
        mkdirSync(join(root, name))
        const { certificate, key } = makeCertificate(NAMES, authority)
        writeFileSync(join(root, name, "tls.crt"), certificate)
        writeFileSync(join(root, name, "tls.key"), key)
      }
      version("one")
      version("two")
      symlinkSync("one", join(root, "current"))
      for (const file of ["tls.crt", "tls.key"]) symlinkSync(`current/${file}`, join(root, file))
      const tls = { certificate: join(root, "tls.crt"), key: join(root, "tls.key") }
      const { port } = yield* startProxy({}, { tls })
      const first = yield* shown(port)
      symlinkSync("two", join(root, "next"))
      renameSync(join(root, "next"), join(root, "current"))
      yield* renewed(port, first)
    })
  )

  it.live("by ones that cannot be used keeps the former in force, which is said once", () =>
    Effect.gen(function* () {
      const { lines, layer } = logged()
      const files = yield* stored(makeCertificate(NAMES, authority))
      const { port } = yield* startProxy({}, { tls: files }).pipe(Effect.provide(layer))
      const first = yield* shown(port)
      const complaints = () =>
        lines.filter((line) => line.includes("goes on with the certificate that it has"))
      replace(files.certificate, "nothing of use")
      yield* eventually(Effect.sync(complaints), ({ length }) => length === 1)
      for (const other of ["a", "b", "c"]) {
        writeFileSync(join(dirname(files.certificate), other), "")
        yield* Effect.sleep(250)
      }
      yield* Effect.sleep(1200)
      assert.match(
        complaints().join("\n"),
        /^Error proxy\.http\.tls\.certificate cannot be used: .* holds no certificate; [^\n]*$/u
      )
      assert.strictEqual(yield* shown(port), first)

      const next = makeCertificate(NAMES, authority)
      replace(files.key, next.key)
      yield* Effect.sleep(300)
      replace(files.certificate, next.certificate)
      yield* renewed(port, first)
      assert.isTrue(
        lines.some((line) => /^Info the proxy's certificate was renewed: DNS:app\.test/u.test(line))
      )
    })
  )

  it.live("one after the other is no reason for a word", () =>
    Effect.gen(function* () {
      const { lines, layer } = logged()
      const files = yield* stored(makeCertificate(NAMES, authority))
      const { port } = yield* startProxy({}, { tls: files }).pipe(Effect.provide(layer))
      const first = yield* shown(port)
      const next = makeCertificate(NAMES, authority)
      replace(files.certificate, next.certificate)
      yield* Effect.sleep(400)
      replace(files.key, next.key)
      yield* renewed(port, first)
      assert.deepStrictEqual(
        lines.filter((line) => line.startsWith("Error")),
        []
      )
    })
  )

  it.live("with their whole directory is taken up when they are there again", () =>
    Effect.gen(function* () {
      const { port, files } = yield* secureProxy()
      const first = yield* shown(port)
      const directory = dirname(files.certificate)
      mkdirSync(`${directory}.new`)
      const next = makeCertificate(NAMES, authority)
      writeFileSync(join(`${directory}.new`, "tls.crt"), next.certificate)
      writeFileSync(join(`${directory}.new`, "tls.key"), next.key)
      renameSync(directory, `${directory}.old`)
      renameSync(`${directory}.new`, directory)
      yield* renewed(port, first)
      rmSync(`${directory}.old`, { recursive: true })
    })
  )

  it.live("is no longer the one that earlier sessions are resumed with", () =>
    Effect.gen(function* () {
      const [former, latter] = [makeAuthority("former clients"), makeAuthority("latter clients")]
      const { port, files } = yield* secureProxy({ clients: former })
      const client = makeCertificate(["me"], former)
      const options = { maxVersion: "TLSv1.2", cert: client.certificate, key: client.key } as const
      const session = yield* Effect.scoped(
        Effect.gen(function* () {
          const talk = yield* dialSecure(port, options)
          return yield* Effect.callback<Buffer>((resume) => {
            talk.socket.once("session", (bytes) => resume(Effect.succeed(bytes)))
          })
        })
      )
      assert.strictEqual(yield* handshake(port, { ...options, session }), "completed")
      replace(files.clientCa ?? "", latter.certificate)
      yield* eventually(handshake(port, options), (result) => result === "failed")
      assert.strictEqual(yield* handshake(port, { ...options, session }), "failed")
    })
  )
})
