/**
 * Accepted connections that read into a buffer of ours. Outside Effect: this is the data path.
 *
 * `net.Socket` takes `onread` for connections that it opens, but `net.Server` makes its sockets without. So the
 * accepted connection's handle is moved to a socket that is made with it, which saves the allocation of a buffer for
 * every read: a tenth of the proxy's time per request. The handle is no documented property; where it is not what
 * it was, the accepted socket is used as it is and works the same, a little slower.
 */
import { Socket } from "node:net"
import type { OnRead } from "./wire.ts"

interface WithHandle {
  _handle?: { useUserBuffer?: unknown } | null
}

/** The connection as a socket that tells what it reads to `onread`. `accepted` must be paused, and is not used again. */
export const adopt = (accepted: Socket, onread: OnRead): Socket => {
  const holder = accepted as unknown as WithHandle
  const handle = holder._handle
  if (typeof handle?.useUserBuffer !== "function") return asItIs(accepted, onread)
  holder._handle = null
  accepted.destroy()
  return new Socket({ handle, onread, allowHalfOpen: true } as ConstructorParameters<typeof Socket>[0])
}

/** The connection as it is, telling what it reads to `onread` in buffers of its own. */
export const asItIs = (accepted: Socket, onread: OnRead): Socket =>
  accepted.on("data", (bytes: Buffer) => onread.callback(bytes.length, bytes))
