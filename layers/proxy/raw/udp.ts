/**
 * UDP to one raw port: each client has a session of its own, through which the guest answers it and nobody else.
 * Outside Effect: this is the data path.
 */
import { createSocket, type RemoteInfo, type Socket } from "node:dgram"
import { isIPv6 } from "node:net"
import type { DatagramSession, RawPort, UpTarget } from "../../../src/services/Proxy.ts"
import type { App, Held } from "../http/app.ts"
import { NEVER, type Perishable } from "../http/sweep.ts"
import type { RawContext } from "./context.ts"
import {
  MAX_HELD_DATAGRAM_BYTES,
  MAX_HELD_DATAGRAMS,
  MAX_QUEUED_DATAGRAM_BYTES,
  MAX_UDP_SESSIONS
} from "./limits.ts"

export class UdpPort {
  readonly socket: Socket
  readonly app: App
  readonly port: RawPort
  readonly context: RawContext
  /** Bytes of datagrams that wait for the guest. */
  heldBytes = 0
  /** By the client's address; who was heard last comes last. */
  readonly #sessions = new Map<string, UdpSession>()

  /** `socket`: bound, or about to be. */
  constructor(socket: Socket, app: App, port: RawPort, context: RawContext) {
    this.socket = socket
    this.app = app
    this.port = port
    this.context = context
    context.open.add(this)
    context.udpPorts.add(this)
    socket.on("message", (bytes, from) => {
      try {
        this.#received(bytes, from)
      } catch (error) {
        context.onDefect(error)
      }
    })
  }

  /** Closes the port and every session. */
  destroy(): void {
    this.context.open.delete(this)
    this.context.udpPorts.delete(this)
    for (const session of [...this.#sessions.values()]) session.end()
    this.socket.close()
  }

  /** Sends to a client. */
  reply(bytes: Uint8Array, to: RemoteInfo): void {
    if (!hasRoom(this.socket)) this.app.udp.dropped++
    else {
      this.app.udp.bytesOut += bytes.length
      // what cannot be sent is lost, as datagrams are
      this.socket.send(bytes, to.port, to.address, () => undefined)
    }
  }

  forget(key: string): void {
    this.#sessions.delete(key)
  }

  #received(bytes: Buffer, from: RemoteInfo): void {
    const { app } = this
    app.arrivals++
    const key = `${from.address} ${from.port}`
    const present = this.#sessions.get(key)
    if (present === undefined && app.target.kind === "unavailable") {
      app.udp.down++
      return
    }
    if (present === undefined) this.#makeRoom()
    const session = present ?? new UdpSession(this, key, from)
    this.#sessions.delete(key)
    this.#sessions.set(key, session)
    session.fromClient(bytes)
  }

  get clients(): number {
    return this.#sessions.size
  }

  /** Forgets the client that was quiet for the longest. */
  forgetOldest(): void {
    for (const session of this.#sessions.values()) {
      session.end()
      return
    }
  }

  /** Where there are too many clients, it is the port with the most of them that gives up a place. */
  #makeRoom(): void {
    const { udpSessions, udpPorts, limits } = this.context
    if (this.clients >= MAX_UDP_SESSIONS) this.forgetOldest()
    else if (udpSessions >= limits.udpSessionsOfHost) {
      let fullest: UdpPort = this
      for (const port of udpPorts) if (port.clients > fullest.clients) fullest = port
      fullest.forgetOldest()
    }
  }
}

class UdpSession implements Held, Perishable {
  deadline = NEVER
  readonly #port: UdpPort
  readonly #key: string
  readonly #client: RemoteInfo
  /** What carries datagrams to the guest, and the target that it was opened for. */
  #link: DatagramSession | undefined
  #linkedTo: UpTarget | undefined
  #waits = false
  /** What the guest has not answered yet, while it may still be too early for it. */
  #held: Array<Buffer> = []
  #heldBytes = 0
  /** Until when a refusal of the guest is not yet its last word; in ms of `performance.now`. */
  #settlesAt = 0
  #retry: NodeJS.Timeout | undefined
  #answered = false
  #refused = false
  #over = false

  constructor(port: UdpPort, key: string, client: RemoteInfo) {
    this.#port = port
    this.#key = key
    this.#client = client
    port.app.udp.open++
    port.context.udpSessions++
    port.context.sweep.add(this)
  }

  fromClient(bytes: Buffer): void {
    const { app, context } = this.#port
    const { target } = app
    this.#touch()
    if (target.kind === "up") {
      this.#link ??= this.#openLink(target)
      if (!reachesTheSame(this.#linkedTo, target)) this.#reopen(target)
      if (performance.now() < this.#settlesAt && !this.#answered) this.#hold(bytes)
      this.#send(bytes)
    } else if (target.kind === "asleep") {
      this.#closeLink()
      this.#hold(bytes)
      if (this.#waits || this.#held.length === 0) return
      this.#waits = true
      app.datagrams++
      context.routes.hold(app, this)
    } else {
      app.udp.down++
      this.#refused = true
      this.end()
    }
  }

  wokenUp(): void {
    const { app, context } = this.#port
    this.#stopWaiting()
    if (app.target.kind !== "up") return
    this.#settlesAt = performance.now() + context.timeouts.settle
    this.#answered = false
    this.#touch()
    this.#reopen(app.target)
    this.#sendHeld()
  }

  notWoken(): void {
    this.#stopWaiting()
    this.#port.app.udp.wakeRefused++
    this.#refused = true
    this.end()
  }

  /** Nothing has come from either side for a while. */
  expired(): void {
    if (this.#waits) this.#touch()
    else this.end()
  }

  end(): void {
    if (this.#over) return
    this.#over = true
    const { app, context } = this.#port
    context.routes.leave(app, this)
    this.#stopWaiting()
    this.#dropHeld()
    this.#closeLink()
    context.sweep.remove(this)
    this.#port.forget(this.#key)
    if (!this.#answered && !this.#refused) app.udp.relayed++
    app.udp.open--
    context.udpSessions--
    context.routes.forgetIfQuiet(app)
  }

  // -------------------------------------------------------------------------------------- to the guest

  #reopen(target: UpTarget): void {
    this.#closeLink()
    this.#link = this.#openLink(target)
  }

  #openLink(target: UpTarget): DatagramSession {
    this.#linkedTo = target
    const { guestPort } = this.#port.port
    const onReply = (bytes: Uint8Array) => this.#fromGuest(bytes)
    if (target.datagrams !== undefined) return target.datagrams.open(guestPort, onReply)
    return openSocket(target.host, guestPort, onReply, () => this.#guestRefused())
  }

  #closeLink(): void {
    this.#link?.close()
    this.#link = undefined
    this.#linkedTo = undefined
  }

  #send(bytes: Uint8Array): void {
    this.#port.app.udp.bytesIn += bytes.length
    this.#link?.send(bytes)
  }

  #sendHeld(): void {
    for (const bytes of this.#held) this.#send(bytes)
  }

  #fromGuest(bytes: Uint8Array): void {
    if (this.#over) return
    const { app } = this.#port
    if (!this.#answered) {
      this.#answered = true
      app.udp.relayed++
      this.#dropHeld()
    }
    this.#touch()
    this.#port.reply(bytes, this.#client)
  }

  #guestRefused(): void {
    if (this.#over || this.#waits) return
    if (performance.now() < this.#settlesAt && this.#held.length > 0) {
      this.#retry ??= setTimeout(() => {
        this.#retry = undefined
        this.#sendHeld()
      }, this.#port.context.timeouts.retry)
      return
    }
    if (!this.#answered) {
      this.#refused = true
      this.#port.app.udp.notTaken++
    }
    this.end()
  }

  // ---------------------------------------------------------------------------------- what is held

  #hold(bytes: Buffer): void {
    const port = this.#port
    const { length } = bytes
    if (this.#held.length >= MAX_HELD_DATAGRAMS || port.heldBytes + length > MAX_HELD_DATAGRAM_BYTES) {
      port.app.udp.dropped++
      return
    }
    port.heldBytes += length
    this.#heldBytes += length
    this.#held.push(bytes)
  }

  #dropHeld(): void {
    clearTimeout(this.#retry)
    this.#retry = undefined
    this.#port.heldBytes -= this.#heldBytes
    this.#heldBytes = 0
    this.#held = []
  }

  #stopWaiting(): void {
    if (!this.#waits) return
    this.#waits = false
    this.#port.app.datagrams--
  }

  #touch(): void {
    const { sweep, timeouts } = this.#port.context
    this.deadline = sweep.after(timeouts.udpIdle)
  }
}

const reachesTheSame = (before: UpTarget | undefined, now: UpTarget): boolean =>
  before !== undefined && before.host === now.host && before.datagrams === now.datagrams

const hasRoom = (socket: Socket): boolean => socket.getSendQueueSize() < MAX_QUEUED_DATAGRAM_BYTES

/** A socket of the client's own: only the guest's port is heard on it, and its refusals are. */
const openSocket = (
  host: string,
  port: number,
  onReply: (bytes: Uint8Array) => void,
  onRefused: () => void
): DatagramSession => {
  const socket = createSocket(isIPv6(host) ? "udp6" : "udp4")
  let waiting: Array<Uint8Array> | undefined = []
  let closed = false
  const refused = (error: NodeJS.ErrnoException | null) => {
    if (error !== null && !closed) onRefused()
  }
  socket.on("message", onReply)
  socket.on("error", refused)
  socket.connect(port, host, () => {
    const first = waiting ?? []
    waiting = undefined
    if (!closed) for (const bytes of first) socket.send(bytes, refused)
  })
  return {
    send: (bytes) => {
      if (closed) return
      if (waiting !== undefined) waiting.push(bytes)
      else if (hasRoom(socket)) socket.send(bytes, refused)
    },
    close: () => {
      if (closed) return
      closed = true
      socket.close()
    }
  }
}
