/** The metrics page of a whole host in memory, beside the report of the same host. */
import { spawnSync } from "node:child_process"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { TestClock } from "effect/testing"
import type { AppId } from "../../../src/document/schema.ts"
import { families } from "../../../src/metrics/families.ts"
import { InstanceState, VolumeReport } from "../../../src/report/schema.ts"
import { ObjectMissing } from "../../../src/services/ArtifactStore.ts"
import type { AppTraffic } from "../../../src/services/Proxy.ts"
import { VolumeError } from "../../../src/services/VolumeBackend.ts"
import { type ReadFamily, readMetrics, valueOf } from "../../support/prometheus.ts"
import { documentOf, rawDocument, rawInstance, rawVolume, running } from "../reconcile/documents.ts"
import { type Host, hostRunning, noTraffic, startHost } from "../reconcile/harness.ts"

const read = (host: Host) => Effect.map(host.metrics, readMetrics)

/** The one state of which the page says 1; fails when it is not exactly one. */
const theState = (
  page: ReadonlyMap<string, ReadFamily>,
  name: string,
  of: Readonly<Record<string, string>>,
  states: ReadonlyArray<string>
): string => {
  const ones = states.filter((state) => valueOf(page, name, { ...of, state }) === 1)
  const zeros = states.filter((state) => valueOf(page, name, { ...of, state }) === 0)
  assert.strictEqual(ones.length, 1, `${name} ${JSON.stringify(of)}`)
  assert.strictEqual(zeros.length, states.length - 1)
  return ones[0] ?? ""
}

const appsOf = (page: ReadonlyMap<string, ReadFamily>): ReadonlySet<string> =>
  new Set([...page.values()].flatMap(({ samples }) => samples.flatMap(({ labels }) => labels.app ?? [])))

const policy = (changes: Record<string, unknown>) => ({
  restartPolicy: {
    maxRestarts: 1,
    initialBackoffMs: 1000,
    maxBackoffMs: 1000,
    backoffFactor: 1,
    resetAfterMs: 600_000,
    ...changes
  }
})

const one = (appId: string, config: Record<string, unknown>) => documentOf(rawInstance(appId, { config }))

describe("the metrics page", () => {
  it.effect("is a page that Prometheus' own tools have nothing to say against", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const lint = Effect.map(host.metrics, (input) => {
        const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], {
          input,
          encoding: "utf8"
        })
        return { status, said: stdout + stderr }
      })
      assert.deepStrictEqual(yield* lint, { status: 0, said: "" })
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-1", "running")
      yield* host.machine.end("app-1", { kind: "exited", code: 1 })
      yield* host.untilState("app-1", "failed")
      yield* host.untilState("app-1", "running")
      assert.deepStrictEqual(yield* lint, { status: 0, said: "" })
    })
  )

  it.effect("declares every series once, with HELP and TYPE, whether it has samples or not", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.until("there is a report", () => host.report() !== undefined)
      const page = yield* read(host)
      assert.deepStrictEqual(
        Array.from(page.values(), ({ name, type }) => [name, type]),
        families.map(({ name, type }) => [name, type])
      )
      for (const { name, help } of page.values()) {
        assert.match(name, /^nibrunner_/u)
        assert.isAbove(help.length, 10, name)
      }
      yield* host.stop()
      assert.strictEqual(yield* host.metrics, "", "a host that has ended offers no page")
    })
  )

  it.effect("gives samples exactly the labels, and values of labels, that are declared", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(
        rawDocument({
          ...running("app-1", "app-2"),
          checkpoints: [{ checkpointId: "cp-1", volumeId: "app-1-vol", desiredState: "present" }]
        })
      )
      yield* host.untilState("app-2", "running")
      yield* host.machine.end("app-2", { kind: "killed", signal: "SIGKILL" })
      yield* host.untilState("app-2", "failed")
      yield* host.untilState("app-2", "running")
      const page = yield* read(host)
      for (const { name, labels } of families) {
        for (const sample of page.get(name)?.samples ?? []) {
          const { le: _, ...own } = sample.labels
          assert.sameMembers(Object.keys(own), Object.keys(labels), name)
          for (const [label, value] of Object.entries(own)) {
            const declared = labels[label]
            if (Array.isArray(declared)) assert.include(declared, value, `${name} ${label}`)
          }
        }
      }
    })
  )

  it.effect("says of the host what the report says", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1", "app-2")
      const page = yield* read(host)
      const report = host.report()
      assert.strictEqual(theState(page, "nibrunner_host_state", {}, ["registering", "ready"]), report?.state)
      for (const [name, has] of [
        ["nibrunner_host_capacity", report?.capacity],
        ["nibrunner_host_allocatable", report?.allocatable]
      ] as const) {
        assert.strictEqual(valueOf(page, name, { resource: "vcpu" }), has?.vcpuCount)
        assert.strictEqual(valueOf(page, name, { resource: "memory" }), has?.memoryMib)
        assert.strictEqual(valueOf(page, name, { resource: "cache" }), has?.cacheBytes)
      }
      assert.strictEqual(valueOf(page, "nibrunner_host_memory_available_bytes"), 12 * 2 ** 30)
      assert.strictEqual(valueOf(page, "nibrunner_slots", { of: "used" }), 2)
      assert.strictEqual(valueOf(page, "nibrunner_slots", { of: "total" }), 16)
      assert.strictEqual(valueOf(page, "nibrunner_host_reconciled"), 1)
      assert.strictEqual(valueOf(page, "nibrunner_host_converged"), 1)
      assert.strictEqual(
        valueOf(page, "nibrunner_build_info", {
          agent: "test",
          guest_image: report?.versions.guestImage ?? "",
          hypervisor: report?.versions.hypervisor ?? "",
          firecracker: "none",
          zerofs: "none"
        }),
        1
      )
      assert.isAbove(valueOf(page, "nibrunner_report_written_timestamp_seconds") ?? 0, 0)
      assert.strictEqual(valueOf(page, "nibrunner_reconcile_seconds_count", { trigger: "restart" }), 1)
      assert.strictEqual(valueOf(page, "nibrunner_reconcile_seconds_count", { trigger: "change" }), 1)
    })
  )

  it.effect("names for each app, volume, checkpoint and export the state that the report names", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const release = yield* Deferred.make<void>()
      host.machine.always("boot", "booting", { stallUntil: release })
      host.volumes.script.fail(
        "provision",
        new VolumeError({ volumeId: "unmade-vol", operation: "created", reason: "the disk is full" }),
        { subject: "unmade-vol" }
      )
      const apps = ["running", "booting", "refused", "stopped", "crowded", "unmade"]
      yield* host.put(
        rawDocument({
          volumes: apps.map((appId) => rawVolume(appId)),
          instances: apps.map((appId) =>
            rawInstance(appId, {
              desiredState: appId === "stopped" ? "stopped" : "running",
              ...(appId === "crowded" ? { config: { resources: { vcpuCount: 1, memoryMib: 15_600 } } } : {}),
              ...(appId === "refused" ? { config: { resources: { vcpuCount: 99, memoryMib: 128 } } } : {})
            })
          ),
          checkpoints: [{ checkpointId: "cp-1", volumeId: "running-vol", desiredState: "present" }]
        })
      )
      yield* host.untilState("running", "running")
      yield* host.untilState("crowded", "pending")
      yield* settled
      const states = yield* compare(host)
      assert.deepStrictEqual(states, {
        running: "running",
        booting: "starting",
        refused: "failed",
        stopped: "stopped",
        crowded: "pending",
        unmade: "failed"
      })
      assert.strictEqual(valueOf(yield* read(host), "nibrunner_host_converged"), 0)
      assert.strictEqual(
        valueOf(yield* read(host), "nibrunner_start_refusals_total", { reason: "no_room" }),
        1,
        "a start that waits is refused once, however often it is looked at"
      )
      yield* Deferred.succeed(release, undefined)
      yield* host.untilState("booting", "running")
      host.machine.listen("running", false)
      yield* host.untilState("running", "unhealthy")
      yield* settled
      assert.strictEqual((yield* compare(host)).running, "unhealthy")
      const page = yield* read(host)
      assert.strictEqual(valueOf(page, "nibrunner_app_unhealthy_total", { app: "running", kind: "http" }), 1)
      assert.strictEqual(
        theState(page, "nibrunner_checkpoint_state", { checkpoint: "cp-1", volume: "running-vol" }, [
          "pending",
          "ready",
          "deleted",
          "failed"
        ]),
        "ready"
      )
    })
  )

  it.effect("counts why apps are not up", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ settings: { maxApps: 6 } })
      host.images.script.fail("prepare", new ObjectMissing({ objectKey: "none", store: "/store" }), {
        subject: "none"
      })
      host.volumes.script.fail(
        "attach",
        new VolumeError({ volumeId: "attach-vol", operation: "attached", reason: "it is gone" }),
        { subject: "attach-vol" }
      )
      host.machine.always("boot", "boot", { fail: "no KVM" })
      host.machine.httpAnswer("silent", { kind: "answered", status: 500 })
      const layer = { kind: "executable", digest: "b".repeat(64), objectKey: "none", destinationPath: "/x" }
      const none = policy({ maxRestarts: 0 })
      const apps = ["refused", "layers", "attach", "boot", "silent", "exits", "fine", "late"]
      yield* host.put(
        rawDocument({
          volumes: apps.map((appId) => rawVolume(appId)),
          instances: [
            rawInstance("refused", { config: { resources: { vcpuCount: 0, memoryMib: 128 } } }),
            rawInstance("layers", { layers: [layer], config: none }),
            rawInstance("attach", { config: none }),
            rawInstance("boot", { config: policy({ maxRestarts: 1 }) }),
            rawInstance("silent"),
            rawInstance("exits"),
            rawInstance("fine"),
            rawInstance("late")
          ]
        })
      )
      yield* host.untilState("exits", "running")
      yield* host.machine.end("exits", { kind: "exited", code: 3 })
      yield* host.until("all have come to an end", () =>
        ["refused", "layers", "attach", "boot", "silent"].every(
          (appId) => host.instanceOf(appId)?.state === "failed"
        )
      )
      yield* host.until("the budget of boot is used up", () =>
        (host.instanceOf("boot")?.message ?? "").includes("used up")
      )
      const page = yield* read(host)
      const failures = (app: string) =>
        Object.fromEntries(
          (page.get("nibrunner_app_failures_total")?.samples ?? [])
            .filter(({ labels }) => labels.app === app)
            .map(({ labels, value }) => [labels.reason, value])
        )
      assert.deepStrictEqual(failures("refused"), { refused: 1 })
      assert.deepStrictEqual(failures("layers"), { layers: 1, out_of_restarts: 1 })
      assert.deepStrictEqual(failures("attach"), { volume: 1, out_of_restarts: 1 })
      assert.deepStrictEqual(failures("boot"), { boot: 2, out_of_restarts: 1 })
      assert.deepStrictEqual(failures("silent"), { never_answered: 1 })
      assert.deepStrictEqual(failures("exits"), { exited: 1 })
      const late = apps.filter((app) => failures(app).no_slot !== undefined)
      assert.strictEqual(late.length, 1, "seven apps want the six slots, and a refused one wants none")
      assert.strictEqual(valueOf(page, "nibrunner_app_start_attempts", { app: "boot" }), 2)
      assert.strictEqual(
        valueOf(page, "nibrunner_storage_operation_seconds_count", {
          operation: "volume_attach",
          outcome: "failed"
        }),
        1
      )
    })
  )

  it.effect("counts probes by their results, and remembers when the app was last well", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(one("app-1", {}))
      yield* host.untilState("app-1", "running")
      yield* settled
      host.machine.httpAnswer("app-1", { kind: "answered", status: 503 })
      yield* host.untilState("app-1", "unhealthy")
      host.machine.httpAnswer("app-1", { kind: "timed-out", ms: 500 })
      yield* TestClock.adjust(2_000)
      const page = yield* read(host)
      const probes = (result: string) =>
        valueOf(page, "nibrunner_app_health_probes_total", { app: "app-1", kind: "http", result })
      assert.isAtLeast(probes("passed") ?? 0, 1)
      assert.isAtLeast(probes("wrong_status") ?? 0, 3)
      assert.isAtLeast(probes("timed_out") ?? 0, 1)
      for (const result of ["passed", "wrong_status", "timed_out"]) {
        assert.strictEqual(valueOf(page, "nibrunner_health_probe_seconds_count", { result }), probes(result))
      }
      const last = host.instanceOf("app-1")?.lastHealthyAt
      assert.strictEqual(
        valueOf(page, "nibrunner_app_last_healthy_timestamp_seconds", { app: "app-1" }),
        Date.parse(last ?? "") / 1000
      )
    })
  )

  it.effect("counts each reading of a document that cannot be used", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const unreadable = Effect.map(read(host), (page) =>
        valueOf(page, "nibrunner_desired_state_unreadable_total")
      )
      assert.strictEqual(yield* unreadable, 0)
      yield* host.put({ hostId: 7 })
      yield* host.until("it is refused", () => host.report()?.message !== null)
      assert.strictEqual(yield* unreadable, 1)
      yield* host.put({ hostId: 7 })
      yield* TestClock.adjust(1_000)
      assert.strictEqual(yield* unreadable, 2)
      assert.strictEqual(
        valueOf(yield* read(host), "nibrunner_host_converged"),
        1,
        "the last good one is in force"
      )
    })
  )

  it.effect("measures the way to what is asked, phase by phase, and the way back after an end", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      host.machine.always("boot", "app-1", { delayMs: 3_000 })
      yield* host.put(running("app-1"))
      yield* host.untilState("app-1", "starting")
      yield* TestClock.adjust(1_000)
      const last = (page: ReadonlyMap<string, ReadFamily>, phase: string) =>
        valueOf(page, "nibrunner_app_last_converge_seconds", { app: "app-1", phase })
      const converged = (page: ReadonlyMap<string, ReadFamily>) =>
        valueOf(page, "nibrunner_app_converged", { app: "app-1" })
      const midway = yield* read(host)
      assert.strictEqual(converged(midway), 0)
      assert.isAtLeast(valueOf(midway, "nibrunner_app_converging_seconds", { app: "app-1" }) ?? 0, 1)
      assert.isUndefined(last(midway, "total"))

      yield* host.untilState("app-1", "running")
      const there = yield* read(host)
      assert.strictEqual(converged(there), 1)
      assert.strictEqual(valueOf(there, "nibrunner_app_converging_seconds", { app: "app-1" }), 0)
      assert.strictEqual(last(there, "boot"), 3)
      assert.isAtLeast(last(there, "total") ?? 0, 3)
      const change = { desired_state: "running", cause: "change" }
      assert.strictEqual(valueOf(there, "nibrunner_converge_seconds_sum", { phase: "boot", ...change }), 3)
      assert.strictEqual(
        valueOf(there, "nibrunner_converge_outcomes_total", { ...change, outcome: "converged" }),
        1
      )

      yield* host.machine.end("app-1", { kind: "killed", signal: "SIGKILL" })
      yield* host.untilState("app-1", "failed")
      yield* host.untilState("app-1", "running")
      const again = yield* read(host)
      const restart = { desired_state: "running", cause: "restart" }
      assert.strictEqual(
        valueOf(again, "nibrunner_converge_outcomes_total", { ...restart, outcome: "converged" }),
        1
      )
      assert.isAtLeast(last(again, "total") ?? 0, 4, "the wait before the start is part of the way")

      host.machine.always("boot", "app-1", { delayMs: 60_000 })
      const next = (deploymentId: string) => documentOf(rawInstance("app-1", { deploymentId }))
      yield* host.put(next("dep-2"))
      yield* host.untilState("app-1", "starting")
      yield* host.put(next("dep-3"))
      yield* host.until("dep-3 is under way", () => host.instanceOf("app-1")?.deploymentId === "dep-3")
      assert.strictEqual(
        valueOf(yield* read(host), "nibrunner_converge_outcomes_total", { ...change, outcome: "superseded" }),
        1
      )
    })
  )

  it.effect("does not measure anew what an earlier daemon brought there", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* settled
      yield* host.crash()
      yield* host.start()
      yield* settled
      const page = yield* read(host)
      assert.strictEqual(valueOf(page, "nibrunner_app_converged", { app: "app-1" }), 1)
      assert.deepStrictEqual(page.get("nibrunner_converge_outcomes_total")?.samples, [])
      assert.deepStrictEqual(page.get("nibrunner_app_failures_total")?.samples, [])
    })
  )

  it.effect("tells what passed through the proxy for raw ports, of the apps that have some", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const ports = [{ name: "echo", guestPort: 4000 }]
      yield* host.put(documentOf(rawInstance("app-1", { config: { ports } }), rawInstance("app-2")))
      yield* host.untilRunning("app-1", "app-2")
      const raw = (from: number): AppTraffic["tcp"] => ({
        open: from,
        relayed: from + 1,
        down: from + 2,
        wakeRefused: from + 3,
        notTaken: from + 4,
        bytesIn: from + 5,
        bytesOut: from + 6,
        dropped: from + 7
      })
      const traffic: AppTraffic = {
        open: 0,
        held: 0,
        arrivals: 0,
        routed: 0,
        answers: { 1: 0, 2: 0, 3: 0, 4: 0, 5: 0 },
        answerSeconds: 0,
        refused: 0,
        unreachable: 0,
        tcp: raw(10),
        udp: raw(20)
      }
      host.proxied.traffic = {
        ...noTraffic,
        apps: new Map([
          ["app-1" as AppId, traffic],
          ["app-2" as AppId, traffic]
        ])
      }
      const page = yield* read(host)
      for (const [protocol, from] of [
        ["tcp", 10],
        ["udp", 20]
      ] as const) {
        const of = { app: "app-1", protocol }
        for (const [index, outcome] of ["served", "down", "refused", "unreachable"].entries()) {
          assert.strictEqual(
            valueOf(page, "nibrunner_raw_port_sessions_total", { ...of, outcome }),
            from + 1 + index
          )
        }
        assert.strictEqual(valueOf(page, "nibrunner_raw_port_sessions_open", of), from)
        assert.strictEqual(
          valueOf(page, "nibrunner_raw_port_bytes_total", { ...of, direction: "in" }),
          from + 5
        )
        assert.strictEqual(
          valueOf(page, "nibrunner_raw_port_bytes_total", { ...of, direction: "out" }),
          from + 6
        )
        assert.strictEqual(valueOf(page, "nibrunner_raw_port_dropped_total", of), from + 7)
      }
      assert.isUndefined(valueOf(page, "nibrunner_raw_port_sessions_open", { app: "app-2", protocol: "tcp" }))
    })
  )

  it.effect("tells what the proxy has counted, of the apps that the document names", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const raw = {
        open: 0,
        relayed: 0,
        down: 0,
        wakeRefused: 0,
        notTaken: 0,
        bytesIn: 0,
        bytesOut: 0,
        dropped: 0
      }
      const traffic: AppTraffic = {
        open: 3,
        held: 0,
        arrivals: 40,
        routed: 40,
        answers: { 1: 1, 2: 20, 3: 3, 4: 4, 5: 5 },
        answerSeconds: 1.5,
        refused: 6,
        unreachable: 7,
        tcp: raw,
        udp: raw
      }
      host.proxied.traffic = {
        ...noTraffic,
        handshakes: { completed: 8, failed: 9, timedOut: 10 },
        joinedWakes: 11,
        outcomes: { served: 33, noSuchHost: 2, wrongHost: 1, refused: 6, unreachable: 7 },
        apps: new Map([
          ["app-1" as AppId, traffic],
          ["gone" as AppId, { ...traffic, open: 2 }]
        ])
      }
      const page = yield* read(host)
      const outcomes = page.get("nibrunner_proxy_requests_total")?.samples ?? []
      assert.deepStrictEqual(
        Object.fromEntries(outcomes.map(({ labels, value }) => [labels.outcome, value])),
        { served: 33, no_such_host: 2, wrong_host: 1, refused: 6, unreachable: 7 }
      )
      for (const [outcome, total] of Object.entries({ completed: 8, failed: 9, timed_out: 10 })) {
        assert.strictEqual(valueOf(page, "nibrunner_proxy_tls_handshakes_total", { outcome }), total)
      }
      assert.strictEqual(valueOf(page, "nibrunner_wake_requests_coalesced_total"), 11)
      assert.strictEqual(valueOf(page, "nibrunner_proxy_requests_in_flight"), 5)
      assert.strictEqual(valueOf(page, "nibrunner_app_requests_open", { app: "app-1" }), 3)
      assert.strictEqual(valueOf(page, "nibrunner_app_requests_total", { app: "app-1", class: "2xx" }), 20)
      assert.strictEqual(valueOf(page, "nibrunner_app_requests_total", { app: "app-1", class: "5xx" }), 5)
      assert.strictEqual(valueOf(page, "nibrunner_app_request_duration_seconds_sum", { app: "app-1" }), 1.5)
      assert.strictEqual(valueOf(page, "nibrunner_app_request_duration_seconds_count", { app: "app-1" }), 33)
      assert.strictEqual(valueOf(page, "nibrunner_proxy_request_duration_seconds_bucket", { le: "0.001" }), 0)
      assert.strictEqual(valueOf(page, "nibrunner_app_requests_refused_total", { app: "app-1" }), 6)
      assert.strictEqual(valueOf(page, "nibrunner_app_requests_unreachable_total", { app: "app-1" }), 7)
      assert.deepStrictEqual([...appsOf(page)], ["app-1"])
    })
  )

  it.effect("tells what the report tells of what guests use", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(running("app-1"))
      yield* host.until(
        "it is measured twice",
        () => host.instanceOf("app-1")?.compute?.cpuShare !== undefined,
        300_000
      )
      const before = host.reporter.reports.length
      yield* host.until("there is a new report", () => host.reporter.reports.length > before)
      const page = yield* read(host)
      const { compute, meters } = host.instanceOf("app-1") ?? {}
      const of = (name: string, labels: Record<string, string> = {}) =>
        valueOf(page, name, { app: "app-1", ...labels })
      assert.strictEqual(of("nibrunner_app_memory_used_bytes"), compute?.memoryUsedBytes)
      assert.strictEqual(of("nibrunner_app_cpu_share"), compute?.cpuShare)
      assert.strictEqual(
        of("nibrunner_app_measured_timestamp_seconds"),
        Date.parse(compute?.measuredAt ?? "") / 1000
      )
      assert.strictEqual(
        of("nibrunner_volume_used_bytes", { volume: "app-1-vol" }),
        host.report()?.volumes[0]?.usage?.usedBytes
      )
      const metered = [
        ["nibrunner_app_time_seconds_total", { holding: "memory" }, (meters?.runningMs ?? 0) / 1000],
        ["nibrunner_app_time_seconds_total", { holding: "snapshot" }, (meters?.idleMs ?? 0) / 1000],
        ["nibrunner_app_cpu_seconds_total", {}, (meters?.cpuMs ?? 0) / 1000],
        ["nibrunner_app_network_bytes_total", { direction: "in" }, meters?.rxBytes ?? 0],
        ["nibrunner_app_network_bytes_total", { direction: "out" }, meters?.txBytes ?? 0],
        ["nibrunner_app_disk_mib_seconds_total", { disk: "used" }, meters?.diskUsedMibSeconds ?? 0]
      ] as const
      for (const [name, labels, value] of metered) {
        // they grow all the time, and the report is a twentieth of a second older
        assert.approximately(of(name, labels) ?? -1, value, 1, `${name} ${JSON.stringify(labels)}`)
      }
      assert.isAbove(meters?.runningMs ?? 0, 0)
    })
  )

  it.effect("forgets an app that leaves the document, and counts it from 0 when it comes back", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-1", "running")
      yield* host.machine.end("app-1", { kind: "exited", code: 1 })
      yield* host.untilState("app-1", "failed")
      assert.deepStrictEqual([...appsOf(yield* read(host))].sort(), ["app-1", "app-2"])
      yield* host.put(
        rawDocument({
          volumes: [rawVolume("app-1", { desiredState: "absent" }), rawVolume("app-2")],
          instances: [rawInstance("app-2")]
        })
      )
      yield* host.until("the volume is gone", () =>
        (host.report()?.volumes ?? []).some(({ appId, state }) => appId === "app-1" && state === "deleted")
      )
      const between = yield* read(host)
      assert.isUndefined(valueOf(between, "nibrunner_app_restarts_total", { app: "app-1" }))
      assert.strictEqual(valueOf(between, "nibrunner_slots", { of: "used" }), 1)
      yield* host.put(running("app-2"))
      yield* host.until("app-1 is forgotten", () => host.report()?.volumes.length === 1)
      assert.deepStrictEqual([...appsOf(yield* read(host))], ["app-2"])
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-1", "running")
      const page = yield* read(host)
      assert.isUndefined(valueOf(page, "nibrunner_app_failures_total", { app: "app-1", reason: "exited" }))
    })
  )
})

/** Longer than a report is ever held back. */
const settled = TestClock.adjust(1_000)

/** Holds the page against the report, which must be of the same states; gives the state of each app. */
const compare = Effect.fnUntraced(function* (host: Host) {
  const page = yield* read(host)
  const report = host.report()
  const states: Record<string, string> = {}
  for (const { appId: app, state, restartCount, lastHealthyAt } of report?.instances ?? []) {
    states[app] = theState(page, "nibrunner_app_state", { app }, InstanceState.literals)
    assert.strictEqual(states[app], state)
    assert.strictEqual(valueOf(page, "nibrunner_app_restarts_total", { app }), restartCount)
    if (lastHealthyAt === undefined) {
      assert.strictEqual(valueOf(page, "nibrunner_app_last_healthy_timestamp_seconds", { app }), 0)
    }
  }
  for (const { volumeId: volume, appId: app, state, sizeBytes } of report?.volumes ?? []) {
    const literals = VolumeReport.fields.state.literals
    assert.strictEqual(theState(page, "nibrunner_volume_state", { volume, app }, literals), state)
    assert.strictEqual(valueOf(page, "nibrunner_volume_size_bytes", { volume, app }), sizeBytes)
  }
  assert.strictEqual(page.get("nibrunner_app_restarts_total")?.samples.length, report?.instances.length)
  assert.strictEqual(page.get("nibrunner_volume_size_bytes")?.samples.length, report?.volumes.length)
  return states
})
