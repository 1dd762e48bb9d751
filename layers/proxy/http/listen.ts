/** Opens and closes the ports that the proxy listens on. */
import type { Server as HttpServer } from "node:http"
import type { Server } from "node:net"
import { Effect } from "effect"
import { BACKLOG } from "./limits.ts"

const remedies: Readonly<Record<string, string>> = {
  EADDRINUSE: "another program listens there",
  EACCES: "ports below 1024 need root or CAP_NET_BIND_SERVICE",
  EADDRNOTAVAIL: "the machine has no such address"
}

/** The sentence for a port that cannot be listened on. `protocol`: empty, or its name and a space. */
export const cannotListen = (
  host: string,
  port: number,
  error: NodeJS.ErrnoException,
  protocol = ""
): string => {
  const why = remedies[error.code ?? ""] ?? error.message
  return `${host} ${protocol}port ${port} cannot be listened on: ${why}`
}

/**
 * Listens; gives the port, which the kernel chooses when `port` is 0. Fails with a sentence that names address and
 * port. `onError` hears what goes wrong with the listener later on.
 */
export const listen = (
  server: Server,
  host: string,
  port: number,
  onError: (error: Error) => void
): Effect.Effect<number, string> =>
  Effect.callback<number, string>((resume) => {
    const refused = (error: NodeJS.ErrnoException) => resume(Effect.fail(cannotListen(host, port, error)))
    server.once("error", refused)
    server.listen({ host, port, backlog: BACKLOG }, () => {
      server.off("error", refused)
      server.on("error", onError)
      const address = server.address()
      resume(Effect.succeed(address !== null && typeof address === "object" ? address.port : port))
    })
  })

/** Stops listening and ends every connection; waits until that is done. */
export const closeAtOnce = (server: HttpServer): Effect.Effect<void> =>
  Effect.callback<void>((resume) => {
    server.close(() => resume(Effect.void))
    server.closeAllConnections()
  })

/** Stops listening. Connections that were accepted are not touched, nor waited for. */
export const close = (server: Server): Effect.Effect<void> => Effect.sync(() => void server.close())
