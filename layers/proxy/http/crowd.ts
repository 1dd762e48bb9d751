/**
 * The connections of callers, and how many of them there may be. Outside Effect: this is the data path.
 *
 * Strangers can open as many connections as they like, and the daemon needs descriptors for more than the proxy. So
 * when there are too many, those that nobody would miss make room: they wait for a request, or for the rest of one's
 * head, and have done so for the longest.
 */
import type { Socket } from "node:net"

export interface Member {
  destroy(): void
  /** The tick of the sweep at which its wait ends. */
  readonly deadline: number
  /** Nothing is lost with it: no request is under way. */
  readonly isSpare: boolean
}

export class Crowd {
  readonly #limit: number
  /** Told when there is no room any more, as often as that is. */
  readonly #onFull: () => void
  readonly #members = new Set<Member>()
  /** When it makes sense to look for spare ones again; in ms of `performance.now`. */
  #lookAgainAt = 0
  /** Connections whose TLS handshake is not over, the oldest first. */
  readonly #handshakes = new Map<string, Socket>()

  constructor(limit: number, onFull: () => void) {
    this.#limit = limit
    this.#onFull = onFull
  }

  get size(): number {
    return this.#members.size + this.#handshakes.size
  }

  /** Whether one more connection may come, for which others may have to go. */
  hasRoom(): boolean {
    if (this.size < this.#limit) return true
    this.#onFull()
    this.#makeRoom()
    return this.size < this.#limit
  }

  add(member: Member): void {
    this.#members.add(member)
  }

  delete(member: Member): void {
    this.#members.delete(member)
  }

  /** A handshake begins on the connection. */
  handshakeBegins(socket: Socket): void {
    const key = nameOf(socket)
    this.#handshakes.set(key, socket)
    socket.once("close", () => {
      if (this.#handshakes.get(key) === socket) this.#handshakes.delete(key)
    })
  }

  /** The handshake is over; `secured` speaks through the connection. */
  handshakeEnds(secured: Socket): void {
    this.#handshakes.delete(nameOf(secured))
  }

  /** Closes every connection at once. */
  close(): void {
    for (const member of [...this.#members]) member.destroy()
    for (const socket of [...this.#handshakes.values()]) socket.destroy()
  }

  #makeRoom(): void {
    if (performance.now() < this.#lookAgainAt) return
    const spare = [...this.#members].filter(({ isSpare }) => isSpare)
    const handshakes = [...this.#handshakes]
    const candidates = spare.length + handshakes.length
    const wanted = Math.ceil(this.#limit / BATCHES)
    if (candidates < wanted) this.#lookAgainAt = performance.now() + POOR_LOOK_MS
    const share = candidates > wanted ? wanted / candidates : 1
    spare.sort((a, b) => a.deadline - b.deadline)
    for (const member of spare.slice(0, Math.ceil(spare.length * share))) {
      this.#members.delete(member)
      member.destroy()
    }
    for (const [key, socket] of handshakes.slice(0, Math.ceil(handshakes.length * share))) {
      this.#handshakes.delete(key)
      socket.destroy()
    }
  }
}

/** So many times room is made until all spare connections were closed: looking for them costs more than closing one. */
const BATCHES = 16
/** How long a look counts that found less than a batch. */
const POOR_LOOK_MS = 100

/** The same for a connection and for the TLS that is spoken on it. */
const nameOf = ({ remoteAddress, remotePort, localAddress, localPort }: Socket): string =>
  `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`
