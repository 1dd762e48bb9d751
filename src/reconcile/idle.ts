/** When a microVM that is up is to sleep. Pure. Source: `activation` and `idleTimeoutMs` of the document. */
import type { DesiredInstance, SleepPolicy } from "../document/schema.ts"

/** Without a word of the document an `on-request` app sleeps after five quiet minutes. */
const defaultIdleMs = 300_000
/** What a request that is open when a lifetime ends is given on top. */
export const drainMs = 30_000
/** A reading of the traffic that is older says nothing of now. */
export const staleMs = 15_000
/** After a sleep that failed. */
export const sleepRetries = { firstMs: 30_000, longestMs: 600_000 }

/** Why an app is put to sleep; `forced`: somebody asked for it by hand. */
export type SleepReason = "idle" | "max-lifetime" | "forced"

/** The policy that the document gives the instance; what is not `on-request` never sleeps. */
export const sleepPolicy = (instance: DesiredInstance): SleepPolicy => {
  if (instance.desiredState !== "on-request") return { kind: "never" }
  if (instance.activation?.sleepWhen !== undefined) return instance.activation.sleepWhen
  return { kind: "traffic-idle", timeoutMs: instance.idleTimeoutMs ?? defaultIdleMs }
}

/** What is known of an app's traffic. Times in ms since 1970. */
export interface Quiet {
  /** Since its start or wake. */
  readonly startedAt: number
  readonly lastActiveAt: number
  /** When the traffic was read last. */
  readonly readAt: number
  /** Requests, streams and connections that are open. */
  readonly open: number
}

/** Why the app is due to sleep now; undefined when it is not. */
export const sleepReason = (policy: SleepPolicy, quiet: Quiet, now: number): SleepReason | undefined => {
  switch (policy.kind) {
    case "never":
      return undefined
    case "traffic-idle": {
      const measured = now - quiet.readAt <= staleMs
      return measured && quiet.open === 0 && now - quiet.lastActiveAt >= policy.timeoutMs ? "idle" : undefined
    }
    case "max-lifetime": {
      // The lifetime does not ask for quiet, so what cannot be measured is no reason to live on.
      const grace = quiet.open > 0 && now - quiet.readAt <= staleMs ? drainMs : 0
      return now - quiet.startedAt >= policy.ttlMs + grace ? "max-lifetime" : undefined
    }
  }
}
