/** When a microVM that failed or ended may be started again, under the document's restart policy. */
import type { RestartPolicy } from "../document/schema.ts"

/** Milliseconds between a failure and the next start, after `attempts` starts (1 or more). */
export const backoffMs = (policy: RestartPolicy, attempts: number): number => {
  const grown = policy.initialBackoffMs * policy.backoffFactor ** Math.max(0, attempts - 1)
  // A factor of 0, below 0 or beyond all bounds is accepted by the document; the wait stays within it.
  const wait = Number.isNaN(grown) ? policy.maxBackoffMs : grown
  return Math.min(policy.maxBackoffMs, Math.max(0, wait))
}

/** Whether the budget allows another start after `attempts` starts: the first one is free, each further one is a restart. */
export const mayStart = (policy: RestartPolicy, attempts: number): boolean => attempts <= policy.maxRestarts

/** Whether an app that stayed up so long has earned its budget back. */
export const earnedBack = (policy: RestartPolicy, uptimeMs: number): boolean =>
  uptimeMs >= policy.resetAfterMs

/** Whole seconds until then, at least one: for a caller who may come back. @param at and now in ms since 1970 */
export const secondsUntil = (at: number, now: number): number => Math.max(1, Math.ceil((at - now) / 1000))
