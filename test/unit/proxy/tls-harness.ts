/** A proxy that speaks TLS, and callers that speak it too. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type ConnectionOptions, type TLSSocket, connect as tlsConnect } from "node:tls"
import { Effect, Logger, type Scope } from "effect"
import type { Timeouts } from "../../../layers/proxy/http/limits.ts"
import type { ProxyOptions } from "../../../layers/proxy/layer.ts"
import { type Authority, type Issued, makeAuthority, makeCertificate } from "./certificates.ts"
import { appId, listenRaw, startProxy, Talk } from "./harness.ts"

export const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "nibrunner-tls-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

export const authority = makeAuthority("the authority")
export const NAMES = ["app.test", "other.test", "unknown.test"]

/** Writes certificate and key to a folder of the test; gives where. */
export const stored = (issued: Issued) =>
  Effect.map(folder, (path) => {
    const files = { certificate: join(path, "tls.crt"), key: join(path, "tls.key") }
    writeFileSync(files.certificate, issued.certificate)
    writeFileSync(files.key, issued.key)
    return files
  })

export interface SecureOptions {
  readonly timeouts?: Partial<Timeouts>
  readonly options?: ProxyOptions
  /** Whose clients get through. */
  readonly clients?: Authority
}

/** A proxy under TLS whose two apps, `app.test` and `other.test`, are one upstream. */
export const secureProxy = ({ timeouts = {}, options = {}, clients }: SecureOptions = {}) =>
  Effect.gen(function* () {
    const app = yield* listenRaw()
    const files = yield* stored(makeCertificate(NAMES, authority))
    const clientCa = join(yield* folder, "clients.crt")
    if (clients !== undefined) writeFileSync(clientCa, clients.certificate)
    const tls = { ...files, ...(clients === undefined ? {} : { clientCa }) }
    const { port, proxy } = yield* startProxy(timeouts, { tls, ...options })
    const target = { kind: "up", host: "127.0.0.1", port: app.port } as const
    yield* proxy.setRoute({ appId, hostnames: ["app.test", "other.test"], target })
    return { app, port, proxy, files: tls, target }
  })

export const secureOptions = (port: number, options: ConnectionOptions = {}) => ({
  host: "127.0.0.1",
  port,
  ca: authority.certificate,
  servername: "app.test",
  checkServerIdentity: () => undefined,
  allowHalfOpen: true,
  ...options
})

/** A connection on which the handshake has begun. */
export const dialSecure = (
  port: number,
  options: ConnectionOptions = {}
): Effect.Effect<Talk & { readonly socket: TLSSocket }, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => new Talk(tlsConnect(secureOptions(port, options))) as Talk & { socket: TLSSocket }),
    ({ socket }) => Effect.sync(() => socket.destroy())
  )

/** Whether the proxy lets a caller ask for something, under these conditions. */
export const handshake = (port: number, options: ConnectionOptions = {}) =>
  Effect.scoped(
    Effect.gen(function* () {
      const talk = yield* dialSecure(port, options)
      talk.write("GET / HTTP/1.1\r\nHost: nobody.test\r\nConnection: close\r\n\r\n")
      const text = yield* talk.rest
      yield* talk.until(({ closed, ended }) => closed || ended)
      return text.startsWith("HTTP/1.1 ") ? "completed" : "failed"
    })
  )

/** What is logged meanwhile, as lines. */
export const logged = () => {
  const lines: Array<string> = []
  const logger = Logger.make(({ message, logLevel }) => void lines.push(`${logLevel} ${String(message)}`))
  return { lines, layer: Logger.layer([logger]) }
}
