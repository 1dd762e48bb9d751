/** One app as the proxy knows it. Outside Effect: this is the data path. */
import type { AppId } from "../../../src/document/schema.ts"
import type { AppTraffic, RawTraffic, RouteTarget, UnavailableTarget } from "../../../src/services/Proxy.ts"
import type { Pool } from "./pool.ts"
import type { Wake } from "./wake.ts"

/** Something that waits for an app to be woken. It is told once, unless it has left by then. */
export interface Held {
  wokenUp(): void
  notWoken(target: UnavailableTarget): void
}

/** A connection to the app's guest. */
export interface Link {
  /** The guest is no more: closes it, and tells whoever it was for. */
  lost(): void
}

/** It stays the same object from the app's first route until it is removed and has nothing open. */
export class App {
  readonly appId: AppId
  hostnames: ReadonlyArray<string> = []
  target: RouteTarget = { kind: "unavailable", reason: "the app has no target yet" }
  /** Connections to the target; absent unless it is up. */
  pool: Pool | undefined
  /** Absent unless the target is asleep. */
  wake: Wake | undefined
  /** Until when it may be too early for its program to listen; in ms of `performance.now`. */
  settlesAt = 0
  /** Connections to the guest, used or not. */
  readonly links = new Set<Link>()
  removed = false

  /** Requests that are open. */
  requests = 0
  /** Datagrams that are held. */
  datagrams = 0
  arrivals = 0
  routed = 0
  refused = 0
  unreachable = 0
  /** Answers by the first digit of their status. */
  readonly answers = [0, 0, 0, 0, 0, 0]
  answerSeconds = 0
  readonly tcp = new RawCounts()
  readonly udp = new RawCounts()

  constructor(appId: AppId) {
    this.appId = appId
  }

  get open(): number {
    return this.requests + this.tcp.open + this.datagrams
  }

  traffic(): AppTraffic {
    const [, one = 0, two = 0, three = 0, four = 0, five = 0] = this.answers
    return {
      open: this.open,
      held: this.wake?.held.size ?? 0,
      arrivals: this.arrivals,
      routed: this.routed,
      answers: { 1: one, 2: two, 3: three, 4: four, 5: five },
      answerSeconds: this.answerSeconds,
      refused: this.refused,
      unreachable: this.unreachable,
      tcp: { ...this.tcp },
      udp: { ...this.udp }
    }
  }
}

export class RawCounts implements RawTraffic {
  open = 0
  relayed = 0
  down = 0
  wakeRefused = 0
  notTaken = 0
  bytesIn = 0
  bytesOut = 0
  dropped = 0
}
