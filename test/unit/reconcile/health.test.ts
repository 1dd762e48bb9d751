import { assert, describe, it } from "@effect/vitest"
import type { HealthCheck } from "../../../src/document/schema.ts"
import {
  describeFailure,
  type Health,
  nextProbeMs,
  observe,
  unprobed,
  verdict
} from "../../../src/reconcile/health.ts"
import type { ProbeResult } from "../../../src/services/HealthProber.ts"

const http: HealthCheck = {
  kind: "http",
  path: "/healthz",
  intervalMs: 5000,
  timeoutMs: 500,
  gracePeriodMs: 10_000,
  healthyThreshold: 2,
  unhealthyThreshold: 3
}
const good: ProbeResult = { kind: "answered", status: 204 }
const bad: ProbeResult = { kind: "answered", status: 500 }
const afterProbes = (check: HealthCheck, ...results: ReadonlyArray<ProbeResult>): Health =>
  results.reduce((health, result) => observe(health, check, result, 0), unprobed)

describe("health", () => {
  it("is reached after healthyThreshold successes in a row", () => {
    assert.strictEqual(verdict(afterProbes(http, good), http, 0), "starting")
    assert.strictEqual(verdict(afterProbes(http, good, bad, good), http, 0), "starting")
    assert.strictEqual(verdict(afterProbes(http, good, good), http, 0), "running")
  })

  it("counts only 2xx: a redirect, a refusal and a silence are failures", () => {
    const failures: ReadonlyArray<ProbeResult> = [
      { kind: "answered", status: 302 },
      { kind: "answered", status: 404 },
      { kind: "refused" },
      { kind: "timed-out", ms: 500 },
      { kind: "failed", reason: "reset" }
    ]
    for (const failure of failures) assert.strictEqual(afterProbes(http, failure).failures, 1)
  })

  it("holds nothing against a guest within its grace period", () => {
    const health = afterProbes(http, bad, bad, bad, bad)
    assert.strictEqual(verdict(health, http, 9_999), "starting")
    assert.strictEqual(verdict(health, http, 10_000), "never-answered")
  })

  it("is lost after unhealthyThreshold failures in a row and won back after healthyThreshold successes", () => {
    const ill = afterProbes(http, good, good, bad, bad, bad)
    assert.strictEqual(verdict(afterProbes(http, good, good, bad, bad), http, 20_000), "running")
    assert.strictEqual(verdict(ill, http, 20_000), "unhealthy")
    const better = observe(ill, http, good, 0)
    assert.strictEqual(verdict(better, http, 20_000), "unhealthy")
    assert.strictEqual(verdict(observe(better, http, good, 0), http, 20_000), "running")
  })

  it("is probed often until the guest first answers, less often when it is slow, and then at the interval", () => {
    const slow = { ...http, gracePeriodMs: 60_000 }
    assert.strictEqual(nextProbeMs(afterProbes(slow, bad), slow, 500), 20)
    assert.strictEqual(nextProbeMs(afterProbes(slow, bad), slow, 10_000), 250)
    assert.strictEqual(nextProbeMs(afterProbes(slow, bad), slow, 60_000), 5000)
    assert.strictEqual(nextProbeMs(afterProbes(http, good, good), http, 500), 5000)
    assert.strictEqual(nextProbeMs(unprobed, { ...http, intervalMs: 10 }, 0), 10)
  })

  it("of the kind boot-completed is asked only until the port has accepted once", () => {
    const check: HealthCheck = { kind: "boot-completed" }
    const accepted: ProbeResult = { kind: "answered", status: 0 }
    assert.strictEqual(nextProbeMs(afterProbes(check, { kind: "refused" }), check, 0), 20)
    assert.isUndefined(nextProbeMs(afterProbes(check, accepted), check, 0))
    assert.strictEqual(verdict(afterProbes(check, accepted), check, 0), "running")
  })

  it("says in one sentence what was asked, how often it failed, and how it failed last", () => {
    const ill = afterProbes(http, good, good, bad, bad, bad)
    assert.strictEqual(
      describeFailure(ill, http, 3000),
      "GET /healthz on port 3000 failed 3 times in a row: it answered 500"
    )
    const silent = afterProbes(http, { kind: "timed-out", ms: 500 })
    assert.match(describeFailure(silent, http, 3000), /port 3000 never succeeded.*10000 ms.*within 500 ms/)
    const deaf = afterProbes(http, { kind: "refused" })
    assert.match(
      describeFailure(deaf, http, 3000),
      /was refused\. A program that listens on 127\.0\.0\.1 alone is not reached: 0\.0\.0\.0 is$/u
    )
  })
})
