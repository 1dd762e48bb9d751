/** What a run of probes says of an instance. Pure: probes come in, a verdict comes out. */
import type { HealthCheck } from "../document/schema.ts"
import type { ProbeOutcome } from "../metrics/host-metrics.ts"
import type { ProbeResult } from "../services/HealthProber.ts"

export interface ProbeSettings {
  readonly intervalMs: number
  readonly timeoutMs: number
  readonly gracePeriodMs: number
  readonly healthyThreshold: number
  readonly unhealthyThreshold: number
}

/** `boot-completed` names no numbers: one success is enough, and a guest has half a minute to come up. */
const bootCompleted: ProbeSettings = {
  intervalMs: 1_000,
  timeoutMs: 2_000,
  gracePeriodMs: 30_000,
  healthyThreshold: 1,
  unhealthyThreshold: 1
}

export const probeSettings = (check: HealthCheck): ProbeSettings =>
  check.kind === "boot-completed" ? bootCompleted : check

/**
 * Between the start and the first success a probe is cheap, and each one that is missed delays the first answer:
 * so often at first, and later, when the app is a slow one anyway, so often.
 */
const startup = { firstMs: 10_000, intervalMs: 20, laterIntervalMs: 250 }

export interface Health {
  /** In a row. */
  readonly successes: number
  readonly failures: number
  readonly everHealthy: boolean
  /** From `unhealthyThreshold` failures in a row until `healthyThreshold` successes in a row. */
  readonly failing: boolean
  /** ms since 1970. */
  readonly lastHealthyAt: number | undefined
  readonly lastFailure: ProbeResult | undefined
}

export const unprobed: Health = {
  successes: 0,
  failures: 0,
  everHealthy: false,
  failing: false,
  lastHealthyAt: undefined,
  lastFailure: undefined
}

/** What is known of a guest that an earlier daemon has seen healthy. */
export const knownHealthy: Health = { ...unprobed, everHealthy: true }

/** A guest that was healthy when it fell asleep: one success shows that it is so again. */
export const justWoken = (check: HealthCheck): Health => ({
  ...unprobed,
  successes: Math.max(0, probeSettings(check).healthyThreshold - 1)
})

/** An `http` check passes on any 2xx; the other kinds on an accepted connection, which answers status 0. */
export const passes = (check: HealthCheck, result: ProbeResult): boolean =>
  result.kind === "answered" && (check.kind !== "http" || (result.status >= 200 && result.status <= 299))

/** How a probe is counted. */
export const probeOutcome = (check: HealthCheck, result: ProbeResult): ProbeOutcome => {
  if (result.kind === "answered") return passes(check, result) ? "passed" : "wrong_status"
  return result.kind === "timed-out" ? "timed_out" : result.kind
}

export const observe = (health: Health, check: HealthCheck, result: ProbeResult, now: number): Health => {
  const settings = probeSettings(check)
  if (!passes(check, result)) {
    const failures = health.failures + 1
    const failing = health.failing || failures >= settings.unhealthyThreshold
    return { ...health, successes: 0, failures, failing, lastFailure: result }
  }
  const successes = health.successes + 1
  const well = successes >= settings.healthyThreshold
  return {
    ...health,
    successes,
    failures: 0,
    everHealthy: health.everHealthy || well,
    failing: health.failing && !well,
    lastHealthyAt: now
  }
}

export type Verdict = "starting" | "running" | "unhealthy" | "never-answered"

/** @param uptimeMs since the start of the microVM; nothing is held against it within the grace period */
export const verdict = (health: Health, check: HealthCheck, uptimeMs: number): Verdict => {
  const counts = health.failing && uptimeMs >= probeSettings(check).gracePeriodMs
  if (counts) return health.everHealthy ? "unhealthy" : "never-answered"
  return health.everHealthy ? "running" : "starting"
}

/** Milliseconds until the next probe; none when the check asks for no more. */
export const nextProbeMs = (health: Health, check: HealthCheck, uptimeMs: number): number | undefined => {
  if (check.kind === "boot-completed" && health.everHealthy) return undefined
  const settings = probeSettings(check)
  const starting = !health.everHealthy && uptimeMs < settings.gracePeriodMs
  if (!starting) return settings.intervalMs
  return Math.min(
    uptimeMs < startup.firstMs ? startup.intervalMs : startup.laterIntervalMs,
    settings.intervalMs
  )
}

/** How a probe failed, as the end of a sentence. */
export const describeProbe = (result: ProbeResult): string => {
  switch (result.kind) {
    case "answered":
      return `it answered ${result.status}`
    case "refused":
      return "the connection was refused"
    case "timed-out":
      return `nothing came within ${result.ms} ms`
    case "failed":
      return result.reason
  }
}

/** The sentence for a guest whose probes fail. */
export const describeFailure = (health: Health, check: HealthCheck, httpPort: number): string => {
  const asked =
    check.kind === "http" ? `GET ${check.path} on port ${httpPort}` : `a connection to port ${httpPort}`
  const last = health.lastFailure === undefined ? "" : `: ${describeProbe(health.lastFailure)}`
  if (health.everHealthy) return `${asked} failed ${health.failures} times in a row${last}`
  const remedy =
    health.lastFailure?.kind === "refused"
      ? ". A program that listens on 127.0.0.1 alone is not reached: 0.0.0.0 is"
      : ""
  return `${asked} never succeeded: ${health.failures} probes failed within and past the grace period of ${probeSettings(check).gracePeriodMs} ms${last}${remedy}`
}
