/** Accepts TLS connections, and hands those on whose handshake is over. Outside Effect: this is the data path. */
import type { Socket } from "node:net"
import { createServer, type SecureContextOptions, type Server, type TLSSocket } from "node:tls"
import type { HandshakeOutcomes } from "../../../../src/services/Proxy.ts"
import { PEER_CHECK_MS } from "../limits.ts"

export interface TlsListenerOptions {
  readonly secureContext: SecureContextOptions
  /** From the connection to the end of the handshake; in ms. */
  readonly handshakeTimeout: number
  readonly handshakes: { -readonly [outcome in keyof HandshakeOutcomes]: number }
  /** Gets a connection that is ready to be used. */
  readonly onSecure: (socket: TLSSocket, servername: string | undefined) => void
  /** Sees every connection as it comes. */
  readonly onConnection: (socket: Socket) => void
}

/**
 * Clients are asked for a certificate when the secure context names authorities. The certificate is changed by
 * `setSecureContext`: connections that are open keep theirs, and no session of before is resumed.
 */
export const createTlsListener = (options: TlsListenerOptions): Server => {
  const { handshakes } = options
  const asksClients = options.secureContext.ca !== undefined
  const server = createServer({
    ...options.secureContext,
    ALPNProtocols: ["h2", "http/1.1", "http/1.0"],
    handshakeTimeout: options.handshakeTimeout,
    requestCert: asksClients,
    rejectUnauthorized: asksClients,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: PEER_CHECK_MS
  })
  server.on("connection", options.onConnection)
  server.on("secureConnection", (socket) => {
    handshakes.completed++
    // not before: who sends no more cannot finish a handshake
    socket.allowHalfOpen = true
    const { servername } = socket as TLSSocket & { readonly servername?: string | false }
    // some clients leave the dot in the name that makes it absolute, which names the same host
    options.onSecure(socket, servername ? servername.toLowerCase().replace(/(?<=.)\.$/u, "") : undefined)
  })
  server.on("tlsClientError", (error: NodeJS.ErrnoException, socket) => {
    if (error.code === "ERR_TLS_HANDSHAKE_TIMEOUT") handshakes.timedOut++
    else handshakes.failed++
    socket.destroy()
  })
  return server
}
