/** What the proxy bears from strangers, and for how long. */

/** The longest head of a request or an answer, start line and final empty line included; in bytes. */
export const MAX_HEAD_BYTES = 16_384
/** The most fields of one head or one trailer section. */
export const MAX_FIELDS = 256
/** The longest trailer section of a chunked body, in bytes. */
export const MAX_TRAILER_BYTES = 8_192
/** The longest line in front of a chunk, its extensions included; in bytes. */
export const MAX_CHUNK_LINE_BYTES = 256
/** All chunk extensions of one body together, in bytes. */
export const MAX_CHUNK_EXTENSION_BYTES = 16_384
/** How long after a request an app that closes its connection may have done so before it saw the request; in ms. */
export const HANG_UP_MS = 10_000
/** The most that is kept of a request's body, so that it can be sent again; in bytes. */
export const MAX_REPLAY_BYTES = 65_536
/** The most interim answers to one request of HTTP/2 that are passed on. */
export const MAX_INTERIM_ANSWERS = 16
/** The most requests that are open on one connection of HTTP/2. */
export const MAX_STREAMS = 128
/** How much of a body is taken on one stream of HTTP/2 before the app has taken it; in bytes. */
export const STREAM_WINDOW_BYTES = 65_535
/** How many streams a caller of HTTP/2 may reset at once, and then in each second, before its connection is closed. */
export const STREAM_RESET_BURST = 256
export const STREAM_RESETS_PER_SECOND = 32
/** What is kept of the body of a request that waits for its app to be woken; in bytes, give or take one read. */
export const MAX_HELD_BYTES = 65_536
/** The most idle connections that are kept to one app. */
export const MAX_IDLE_UPSTREAMS = 128
/** The most that is read and thrown away after an answer that ends the connection; in bytes. */
export const MAX_LINGER_BYTES = 4_194_304

/** The most connections of callers, where the daemon may open four times as many files; else a quarter of those. */
export const MAX_CALLERS = 16_384
/** The same under TLS, where one that is idle takes 55 KiB of memory instead of 5. */
export const MAX_SECURE_CALLERS = 8_192
/** Connections that the kernel accepts before the proxy does. */
export const BACKLOG = 1_024
/** How long a connection is quiet before the kernel asks whether its peer is still there; in ms. */
export const PEER_CHECK_MS = 60_000

/** How long the proxy waits; all in ms, all rounded up to the next sweep. Bodies have no limit. */
export interface Timeouts {
  /** From a new connection to the end of its TLS handshake. */
  readonly handshake: number
  /** From a new connection, or from the first byte of a request, to the end of the request's head. */
  readonly head: number
  /** From an answer to the first byte of the next request on the same connection. */
  readonly keepAlive: number
  /** For a connection to an app to be accepted. */
  readonly connect: number
  /**
   * How long an app that has just been woken may refuse a request: its program may open its port after what says that
   * it is ready.
   */
  readonly settle: number
  /** Between two attempts in that time. */
  readonly settleRetry: number
  /** How long an unused connection to an app is kept: less than the 5 s after which Node's servers close theirs. */
  readonly upstreamIdle: number
  /**
   * A connection to an app that was unused for longer is not used for a request that must not be sent twice:
   * the app could be closing it at this moment.
   */
  readonly upstreamFresh: number
  /** After an answer that ends the connection, until the caller has closed its side. */
  readonly linger: number
  /** How long a caller that has closed its sending side is kept, once there is an answer or in HTTP/1.0, while nothing comes from the app. */
  readonly halfClosed: number
  /** The same for a caller of HTTP/1.0 whose request waits for its app to be woken. */
  readonly halfClosedHeld: number
  /**
   * Between two questions to a caller of HTTP/1.1 whether it is still there, while its request has no answer and
   * nothing else would tell that it has left.
   */
  readonly probe: number
  /** From the first such question to a caller that waits for a wake to the second. */
  readonly hangUp: number
  /** The time between two sweeps, which is when all of these are looked at. */
  readonly sweep: number
}

export const defaultTimeouts: Timeouts = {
  handshake: 10_000,
  head: 10_000,
  keepAlive: 75_000,
  connect: 10_000,
  settle: 5_000,
  settleRetry: 100,
  upstreamIdle: 4_000,
  upstreamFresh: 1_000,
  linger: 5_000,
  halfClosed: 30_000,
  halfClosedHeld: 120_000,
  probe: 2_000,
  hangUp: 100,
  sweep: 500
}
