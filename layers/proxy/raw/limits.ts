/** What raw ports bear from strangers and from guests, and for how long. */

/** What is kept of a connection's first bytes until the guest takes it; in bytes, give or take one read. */
export const MAX_HELD_BYTES = 65_536
/** The most connections to the raw ports of the host, where the daemon may open eight times as many files; else an eighth of those. */
export const MAX_TCP_SESSIONS_OF_HOST = 8_192
/** The most clients that one port keeps apart: a new one takes the place of who was quiet for the longest. */
export const MAX_UDP_SESSIONS = 1_024
/** The same for all ports of the host together, where the daemon may open eight times as many files; else an eighth of those. */
export const MAX_UDP_SESSIONS_OF_HOST = 16_384
/** What is kept of one client's datagrams until the guest takes them. */
export const MAX_HELD_DATAGRAMS = 16
/** What is kept of all clients' datagrams to one port until then; in bytes. */
export const MAX_HELD_DATAGRAM_BYTES = 1_048_576
/** Datagrams wait in the kernel and, up to so many bytes, with us; what is more is dropped, as networks do. */
export const MAX_QUEUED_DATAGRAM_BYTES = 4_194_304

/** How many connections raw ports may have. */
export interface RawLimits {
  readonly tcpSessionsOfHost: number
  /** To all of one app's ports. */
  readonly tcpSessionsOfApp: number
  /** Clients of UDP. */
  readonly udpSessionsOfHost: number
}

/** How long raw ports wait; all in ms. */
export interface RawTimeouts {
  /** For the guest to take a connection. */
  readonly connect: number
  /** How long a guest that has just been woken may refuse: its program may open this port after the one that says it is ready. */
  readonly settle: number
  /** Between two attempts in that time. */
  readonly retry: number
  /** How long a connection that one side has ended is kept without a byte from the other. */
  readonly halfClosed: number
  /** How long a client of UDP is remembered without a datagram from either side. */
  readonly udpIdle: number
}

export const defaultRawTimeouts: RawTimeouts = {
  connect: 10_000,
  settle: 5_000,
  retry: 100,
  halfClosed: 3_600_000,
  udpIdle: 60_000
}
