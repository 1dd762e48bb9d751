/**
 * How long an app takes to become what its document asks: from a change of the ask, or from the loss of what was
 * there, until it is so. Pure: sights come in, what ended comes out. Times in ms since 1970.
 */

/** `volume`: made, grown, attached; `boot`: the VMM's start to its guest's hello; `ready`: from there to the first good probe. */
export const phases = ["layers", "volume", "boot", "ready", "total"] as const
export type Phase = (typeof phases)[number]
/** A phase that is measured as it runs; the others follow from when it ended. */
export type WorkPhase = Exclude<Phase, "ready" | "total">

/** `change`: the document asks for something else; `restart`: the app was as asked and is so no more. */
export const causes = ["change", "restart"] as const
export type Cause = (typeof causes)[number]

export const outcomes = ["converged", "superseded"] as const
export type Outcome = (typeof outcomes)[number]

export interface Sight {
  readonly at: number
  /** Names what the document asks: its deployment and desired state. */
  readonly ask: string
  readonly desiredState: string
  readonly converged: boolean
  /** It was as asked before this daemon looked. */
  readonly knownConverged: boolean
  /** It fails its health check, and nothing is done about it. */
  readonly unhealthy: boolean
}

/** A convergence that ended. `seconds` holds the phases that it had. */
export interface Ended {
  readonly outcome: Outcome
  readonly cause: Cause
  readonly desiredState: string
  readonly seconds: ReadonlyMap<Phase, number>
}

interface UnderWay {
  readonly cause: Cause
  readonly desiredState: string
  readonly since: number
  readonly seconds: Map<Phase, number>
  bootedAt: number | undefined
}

export class Convergence {
  #ask: string | undefined
  #underWay: UnderWay | undefined
  #last: ReadonlyMap<Phase, number> | undefined

  /** Since when the app is not what is asked; undefined when it is. */
  get since(): number | undefined {
    return this.#underWay?.since
  }

  /** The phases of the last convergence; undefined before the first and while one is under way. */
  get last(): ReadonlyMap<Phase, number> | undefined {
    return this.#underWay === undefined ? this.#last : undefined
  }

  /** Adds to a phase of the convergence that is under way, if one is: attempts that fail count too. */
  worked(phase: WorkPhase, seconds: number, at: number): void {
    const running = this.#underWay
    if (running === undefined) return
    running.seconds.set(phase, (running.seconds.get(phase) ?? 0) + seconds)
    if (phase === "boot") running.bootedAt = at
  }

  /** The app as it is now; gives the convergences that this ends, oldest first. */
  see(sight: Sight): ReadonlyArray<Ended> {
    const ended: Array<Ended> = []
    const first = this.#ask === undefined
    if (this.#ask !== sight.ask) {
      ended.push(...this.superseded())
      this.#ask = sight.ask
      if (!sight.converged || !first) {
        this.#begin(sight, first && sight.knownConverged ? "restart" : "change")
      }
    } else if (this.#underWay === undefined && !sight.converged && !sight.unhealthy) {
      this.#begin(sight, "restart")
    }
    if (sight.converged) ended.push(...this.#end(sight.at))
    return ended
  }

  /** Gives up what is under way: the document asks for something else, or for nothing. */
  superseded(): ReadonlyArray<Ended> {
    const running = this.#underWay
    this.#underWay = undefined
    if (running === undefined) return []
    const { cause, desiredState } = running
    return [{ outcome: "superseded", cause, desiredState, seconds: new Map() }]
  }

  #begin({ at, desiredState }: Sight, cause: Cause): void {
    this.#underWay = { cause, desiredState, since: at, seconds: new Map(), bootedAt: undefined }
  }

  #end(at: number): ReadonlyArray<Ended> {
    const running = this.#underWay
    if (running === undefined) return []
    const { cause, desiredState, seconds, since, bootedAt } = running
    if (bootedAt !== undefined) seconds.set("ready", (at - bootedAt) / 1000)
    seconds.set("total", (at - since) / 1000)
    this.#underWay = undefined
    this.#last = seconds
    return [{ outcome: "converged", cause, desiredState, seconds }]
  }
}
