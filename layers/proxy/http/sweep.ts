/**
 * One coarse timer for all connections of a proxy. Outside Effect: this is the data path, where a timer per
 * request would cost more than the request.
 */

/** Whatever has a time after which it is looked at. */
export interface Perishable {
  /** The tick after which `expired` is called; `NEVER` for none. */
  deadline: number
  expired(): void
}

export const NEVER = Number.MAX_SAFE_INTEGER

export class Sweep {
  /** Sweeps so far. */
  tick = 0
  readonly #interval: number
  readonly #members = new Set<Perishable>()
  readonly #timer: NodeJS.Timeout

  /** `interval` in ms. */
  constructor(interval: number) {
    this.#interval = interval
    this.#timer = setInterval(() => this.#sweep(), interval).unref()
  }

  add(member: Perishable): void {
    this.#members.add(member)
  }

  remove(member: Perishable): void {
    this.#members.delete(member)
  }

  /** The tick that lies at least so many ms ahead. */
  after(ms: number): number {
    return this.tick + 1 + this.ticks(ms)
  }

  /** So many ms in ticks, rounded up. */
  ticks(ms: number): number {
    return Math.ceil(ms / this.#interval)
  }

  stop(): void {
    clearInterval(this.#timer)
    this.#members.clear()
  }

  #sweep(): void {
    this.tick++
    for (const member of this.#members) {
      if (member.deadline < this.tick) {
        member.deadline = NEVER
        member.expired()
      }
    }
  }
}
