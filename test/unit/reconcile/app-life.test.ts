import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { TestClock } from "effect/testing"
import { LayerUnusable } from "../../../src/services/LayerImages.ts"
import { VolumeError } from "../../../src/services/VolumeBackend.ts"
import { recordedLog } from "../../support/log.ts"
import {
  digest,
  documentOf,
  rawDocument,
  rawInstance,
  rawVolume,
  running,
  stopped,
  volumeOf
} from "./documents.ts"
import { hostRunning, makeHost, startHost } from "./harness.ts"

describe("a document becomes an app that answers", () => {
  it.effect("names the app running, with its slot's port and address, once its health check passes", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const report = host.instanceOf("app-1")
      assert.strictEqual(report?.hostPort, 21000)
      assert.strictEqual(report?.guestIpv4, "10.201.0.2")
      assert.strictEqual(report?.deploymentId, "dep-1")
      assert.strictEqual(report?.layerDigests?.length, 1)
      assert.isDefined(report?.convergedAt)
      assert.strictEqual(host.report()?.volumes[0]?.state, "ready")
      assert.deepInclude(host.routes.get("app-1")?.target, { kind: "up", host: "127.201.0.2", port: 3000 })
    })
  )

  it.effect("routes the hostname before it reports the app as running", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(running("app-1"))
      yield* host.until("the route is up", () => host.routes.get("app-1")?.target.kind === "up")
      assert.notStrictEqual(host.instanceOf("app-1")?.state, "running")
      yield* host.untilState("app-1", "running")
    })
  )

  it.effect("hands the guest its whole environment and nothing of it to a disk", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const spec = host.machine.machineOf("app-1")?.bootSpec
      assert.strictEqual(Object.fromEntries(spec?.environment ?? []).NIBRUN_HOSTNAME, "app-1.example.com")
      assert.strictEqual(spec?.layerCount, 1)
    })
  )

  it.effect("boots an on-request app once when it is first deployed", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(documentOf(rawInstance("app-1", { desiredState: "on-request" })))
      yield* host.untilState("app-1", "running")
    })
  )

  it.effect("never touches an app that a new document leaves as it was", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1", "app-2")
      const before = host.machine.machineOf("app-1")?.record.machineId
      yield* host.put(running("app-1", "app-3"))
      yield* host.untilState("app-3", "running")
      yield* host.until("app-2 is gone", () => host.machine.machineOf("app-2") === undefined)
      assert.strictEqual(host.machine.machineOf("app-1")?.record.machineId, before)
      assert.strictEqual(host.machine.callsOf("boot", "app-1").length, 1)
    })
  )
})

describe("a document that changes", () => {
  it.effect("replaces the microVM under a new deploymentId and keeps slot and volume", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const first = host.machine.machineOf("app-1")?.record.machineId
      yield* host.put(documentOf(rawInstance("app-1", { deploymentId: "dep-2" })))
      yield* host.untilDeployed("app-1", "dep-2")
      assert.notStrictEqual(host.machine.machineOf("app-1")?.record.machineId, first)
      assert.strictEqual(host.instanceOf("app-1")?.hostPort, 21000)
      assert.strictEqual(host.volumes.formattings, 1)
    })
  )

  it.effect("leaves a running instance what it booted with when only its config changes", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* host.put(
        documentOf(
          rawInstance("app-1", {
            config: { httpPort: 9999 },
            hostnames: [{ hostname: "new.example.com", kind: "custom" }]
          })
        )
      )
      yield* host.until(
        "the new hostname is routed",
        () => host.routes.get("app-1")?.hostnames[0] === "new.example.com"
      )
      assert.deepInclude(host.routes.get("app-1")?.target, { kind: "up", host: "127.201.0.2", port: 3000 })
      assert.strictEqual(host.machine.callsOf("boot").length, 1)
    })
  )

  it.effect("stops an app that is to be stopped, answers for it, and starts it again on demand", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* host.put(stopped("app-1"))
      yield* host.untilState("app-1", "stopped")
      assert.deepStrictEqual(host.machine.machines, [])
      assert.strictEqual(host.routes.get("app-1")?.target.kind, "unavailable")
      yield* host.run("app-1")
      assert.strictEqual(host.instanceOf("app-1")?.hostPort, 21000)
    })
  )

  it.effect("withdraws the hostname of a dropped app before it stops it, and keeps its volume", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.script("app-1", { shutdownAfterMs: 3000 })
      yield* host.start()
      yield* host.run("app-1")
      yield* host.put(rawDocument({ volumes: [rawVolume("app-1")] }))
      yield* host.until("the route is gone", () => !host.routes.has("app-1"))
      assert.strictEqual(host.machine.machines.length, 1)
      yield* host.until("the microVM is gone", () => host.machine.machines.length === 0)
      assert.deepStrictEqual(host.report()?.instances, [])
      assert.strictEqual(host.report()?.volumes[0]?.state, "ready")
    })
  )

  it.effect(
    "deletes a volume that is absent, reports it deleted, and forgets it when it is named no more",
    () =>
      Effect.gen(function* () {
        const host = yield* hostRunning("app-1")
        yield* host.put(rawDocument({ volumes: [rawVolume("app-1", { desiredState: "absent" })] }))
        yield* host.until(
          "the volume is reported deleted",
          () => host.report()?.volumes[0]?.state === "deleted"
        )
        assert.strictEqual(host.volumes.volumes.size, 0)
        yield* host.put(rawDocument())
        yield* host.until("nothing is reported", () => host.report()?.volumes.length === 0)
        assert.strictEqual(host.state.apps.size, 0)
        assert.strictEqual(host.state.volumes.size, 0)
        assert.deepStrictEqual([...host.machine.links], [])
      })
  )

  it.effect("keeps an absent volume that an instance still names, and says so on both", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* host.put(
        rawDocument({
          volumes: [rawVolume("app-1", { desiredState: "absent" })],
          instances: [rawInstance("app-1")]
        })
      )
      yield* host.until("both say why", () => host.report()?.volumes[0]?.message !== undefined)
      assert.match(host.report()?.volumes[0]?.message ?? "", /instance of app-1 still names it/)
      assert.match(host.instanceOf("app-1")?.message ?? "", /marked absent/)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      assert.strictEqual(host.volumes.volumes.size, 1)
    })
  )

  it.effect("gives up a start that a newer document supersedes, and leaves nothing of it", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const gate = yield* Deferred.make<void>()
      host.machine.next("boot", "app-1", { stallUntil: gate })
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* host.machine.awaitCall("boot", "app-1")
      yield* host.put(documentOf(rawInstance("app-1", { deploymentId: "dep-2" })))
      yield* host.untilDeployed("app-1", "dep-2")
      assert.strictEqual(host.machine.machines.length, 1)
    })
  )

  it.effect("that is refused changes nothing and is explained until a good one comes", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const digest = host.report()?.acceptedDigest
      yield* host.put({ hostId: "host-1" })
      yield* host.until("the refusal is reported", () => host.report()?.message !== null)
      assert.match(host.report()?.message ?? "", /volumes/)
      assert.strictEqual(host.report()?.acceptedDigest, digest)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      yield* host.put(rawDocument({ ...running("app-1"), revision: "r2" }))
      yield* host.until("the refusal is cleared", () => host.report()?.message === null)
      assert.strictEqual(host.report()?.acceptedRevision, "r2")
    })
  )
})

describe("a failure lands on the app that it breaks, with a sentence", () => {
  const failing = (
    name: string,
    prepare: (host: Effect.Success<ReturnType<typeof makeHost>>) => void,
    sentence: RegExp
  ) =>
    it.effect(name, () =>
      Effect.gen(function* () {
        const host = yield* makeHost({ settings: { guestHelloTimeoutMs: 3000 } })
        prepare(host)
        yield* host.start()
        const layers = [{ kind: "filesystem", digest: digest("b"), objectKey: "good" }]
        yield* host.put(documentOf(rawInstance("app-1"), rawInstance("app-2", { layers })))
        yield* host.untilState("app-2", "running")
        yield* host.until("app-1 has used up its restarts", () =>
          /used up/.test(host.instanceOf("app-1")?.message ?? "")
        )
        assert.strictEqual(host.instanceOf("app-1")?.state, "failed")
        assert.match(host.instanceOf("app-1")?.message ?? "", sentence)
        assert.isUndefined(host.machine.machineOf("app-1"))
        assert.strictEqual(host.instanceOf("app-2")?.state, "running")
      })
    )

  failing(
    "a layer that cannot be made",
    (host) => {
      host.images.script.fail(
        "prepare",
        new LayerUnusable({
          kind: "executable",
          digest: "a".repeat(64),
          objectKey: "server",
          reason: "is neither squashfs nor ext4"
        }),
        { subject: "server" }
      )
    },
    /layer "server"/
  )

  failing(
    "a volume that cannot be attached",
    (host) => {
      host.volumes.script.fail(
        "attach",
        new VolumeError({ volumeId: volumeOf("app-1"), operation: "attached", reason: "its file is gone" }),
        { subject: volumeOf("app-1") }
      )
    },
    /volume app-1-vol cannot be attached: its file is gone/
  )

  failing(
    "a VMM that does not start",
    (host) => {
      host.machine.always("boot", "app-1", { fail: "no KVM" })
    },
    /microVM of app-1 could not be started: no KVM/
  )

  failing(
    "a guest that never says a word",
    (host) => {
      host.machine.script("app-1", { helloAfterMs: "never" })
    },
    /say hello/
  )

  failing(
    "a guest that does not take its boot spec",
    (host) => {
      host.machine.always("hand-over", "app-1", { fail: "the channel broke" })
    },
    /channel broke/
  )

  failing(
    "a program that is not there",
    (host) => {
      host.machine.script("app-1", {
        life: [
          { say: { kind: "failed", reason: "there is no program at /app/server in any layer" } },
          { exit: { kind: "exited", code: 0 } }
        ]
      })
    },
    /there is no program at \/app\/server in any layer/
  )

  failing(
    "a microVM that is killed soon after each start",
    (host) => {
      host.machine.script("app-1", { life: [{ afterMs: 500, exit: { kind: "killed", signal: "SIGKILL" } }] })
    },
    /killed by SIGKILL/
  )

  it.effect(
    "a guest that never answers fails past its grace period but is left up, and the log says so",
    () => {
      const log = recordedLog()
      return Effect.gen(function* () {
        const host = yield* makeHost()
        host.machine.httpAnswer("app-1", { kind: "answered", status: 404 })
        yield* host.start()
        yield* host.put(running("app-1"))
        yield* host.untilState("app-1", "starting")
        yield* host.untilState("app-1", "failed")
        assert.match(host.instanceOf("app-1")?.message ?? "", /port 3000 never succeeded.*404/)
        assert.strictEqual(host.machine.machines.length, 1)
        host.machine.httpAnswer("app-1", undefined)
        yield* host.untilState("app-1", "running")
        assert.isUndefined(host.instanceOf("app-1")?.message)
        assert.match(
          log.lines.join("\n"),
          /^Warn app-1 is not healthy: GET \/ on port 3000 never succeeded: [^\n]*404\n(?:.*\n)*Info app-1 is up and healthy$/mu
        )
      }).pipe(Effect.provide(log.layer))
    }
  )

  it.effect("a guest that answers no more is told to the log, and its recovery, once each", () => {
    const log = recordedLog()
    return Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      host.machine.httpAnswer("app-1", { kind: "answered", status: 500 })
      yield* host.untilState("app-1", "unhealthy")
      host.machine.httpAnswer("app-1", undefined)
      yield* host.untilState("app-1", "running")
      const told = log.lines.filter((line) => / not healthy| healthy again/u.test(line))
      assert.lengthOf(told, 2)
      assert.match(
        told[0] ?? "",
        /^Warn app-1 is not healthy: .* failed \d+ times in a row: it answered 500$/u
      )
      assert.strictEqual(told[1], "Info app-1 is healthy again")
    }).pipe(Effect.provide(log.layer))
  })

  it.effect("a volume that cannot be made fails by itself and its instance with it, no start counted", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.volumes.script.fail(
        "provision",
        new VolumeError({ volumeId: volumeOf("app-1"), operation: "created", reason: "the disk is full" }),
        { subject: volumeOf("app-1"), times: 2 }
      )
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* host.untilState("app-1", "failed")
      assert.match(host.instanceOf("app-1")?.message ?? "", /disk is full/)
      assert.strictEqual(host.report()?.volumes[0]?.state, "failed")
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.state.apps.get("app-1" as never)?.attempts, 1)
    })
  )

  it.effect(
    "what the host does not serve fails that instance only, and is taken up when the document is corrected",
    () =>
      Effect.gen(function* () {
        const host = yield* startHost()
        const refused = rawInstance("app-1", { config: { resources: { vcpuCount: 99, memoryMib: 256 } } })
        yield* host.put(
          rawDocument({
            volumes: [rawVolume("app-1"), rawVolume("app-2")],
            instances: [refused, rawInstance("app-2")]
          })
        )
        yield* host.untilState("app-2", "running")
        assert.strictEqual(host.instanceOf("app-1")?.state, "failed")
        assert.match(host.instanceOf("app-1")?.message ?? "", /vcpuCount is 99/)
        yield* host.put(running("app-1", "app-2"))
        yield* host.untilState("app-1", "running")
      })
  )
})

describe("a release on another volume", () => {
  it.effect("takes no place before its volume is made: the old one serves on, and the report says why", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      host.volumes.script.fail(
        "provision",
        new VolumeError({ volumeId: "next", operation: "created", reason: "the disk is full" }),
        {
          times: 2
        }
      )
      const volumes = [rawVolume("app-1"), rawVolume("app-1", { volumeId: "next" })]
      yield* host.put(
        rawDocument({
          volumes,
          instances: [rawInstance("app-1", { deploymentId: "dep-2", volumeId: "next" })]
        })
      )
      yield* host.until(
        "it says why",
        () => host.instanceOf("app-1")?.message?.startsWith("deployment dep-1 serves on, as ") === true
      )
      assert.include(host.instanceOf("app-1")?.message ?? "", "the disk is full")
      assert.strictEqual(host.machine.machines.length, 1)
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.instanceOf("app-1")?.deploymentId, "dep-2")
      assert.strictEqual(host.machine.callsOf("boot").length, 2)
    })
  )
})

describe("restarts", () => {
  it.effect("a VMM that is killed is replaced under the same port, its neighbour untouched", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1", "app-2")
      const port = host.instanceOf("app-1")?.hostPort
      yield* host.machine.end("app-1", { kind: "killed", signal: "SIGKILL" })
      yield* host.until("app-1 is not running", () => host.instanceOf("app-1")?.state !== "running")
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.instanceOf("app-1")?.hostPort, port)
      assert.strictEqual(host.instanceOf("app-1")?.restartCount, 0)
      assert.strictEqual(host.machine.callsOf("boot", "app-2").length, 1)
    })
  )

  it.effect("inside the guest are counted and told, and a new boot starts the count over", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* host.machine.say("app-1", {
        kind: "restarting",
        attempt: 1,
        budget: 3,
        total: 1,
        exit: { code: 3 },
        backoffMs: 1000,
        reason: "the program exited with code 3"
      })
      yield* host.until("the restart is reported", () => host.instanceOf("app-1")?.restartCount === 1)
      assert.deepInclude(host.instanceOf("app-1")?.lastRestart, {
        attempt: 1,
        budget: 3,
        exit: { code: 3 },
        backoffMs: 1000
      })
      yield* host.machine.end("app-1", { kind: "exited", code: 0 })
      yield* host.until("it was booted again", () => host.machine.callsOf("boot", "app-1").length === 2)
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.instanceOf("app-1")?.restartCount, 0)
      assert.strictEqual(host.instanceOf("app-1")?.lastExitCode, 0)
    })
  )

  it.effect("of an app that stayed up for resetAfterMs cost no budget", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(running("app-1"))
      for (let round = 1; round <= 6; round++) {
        yield* host.until(`boot ${round}`, () => host.machine.callsOf("boot", "app-1").length === round)
        yield* host.untilState("app-1", "running")
        yield* TestClock.adjust(61_000)
        yield* host.machine.end("app-1", { kind: "killed", signal: "SIGKILL" })
        yield* host.until("the end is seen", () => host.instanceOf("app-1")?.state !== "running")
      }
      yield* host.untilState("app-1", "running")
    })
  )
})

describe("the host's limits", () => {
  it.effect(
    "memory is given in document order and the rest wait, naming the shortfall, without an attempt",
    () =>
      Effect.gen(function* () {
        const host = yield* startHost({ machine: { memoryMib: 640 + 600 } })
        yield* host.put(running("app-3", "app-2", "app-1"))
        yield* host.untilRunning("app-3", "app-2")
        assert.strictEqual(host.instanceOf("app-1")?.state, "pending")
        assert.match(host.instanceOf("app-1")?.message ?? "", /168 MiB short/)
        assert.strictEqual(host.state.apps.get("app-1" as never)?.attempts, 0)
        yield* host.put(running("app-2", "app-1"))
        yield* host.untilState("app-1", "running")
      })
  )

  it.effect("max_concurrent_vm_starts bounds boots, and its permit is free once the guest is up", () =>
    Effect.gen(function* () {
      const host = yield* makeHost({ settings: { maxConcurrentVmStarts: 1 } })
      host.machine.script("app-1", { life: [], helloAfterMs: 2000 })
      yield* host.start()
      yield* host.put(running("app-1", "app-2"))
      yield* host.until("app-2 waits", () =>
        /max_concurrent_vm_starts/.test(host.instanceOf("app-2")?.message ?? "")
      )
      assert.strictEqual(host.instanceOf("app-2")?.state, "pending")
      yield* host.untilState("app-2", "running")
      assert.notStrictEqual(host.instanceOf("app-1")?.state, "running")
    })
  )

  it.effect("max_apps full is told by name, and the app is placed when a slot comes free", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ settings: { maxApps: 1 } })
      yield* host.run("app-1")
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-2", "failed")
      assert.match(host.instanceOf("app-2")?.message ?? "", /all 1 of max_apps are taken/)
      assert.isUndefined(host.instanceOf("app-2")?.hostPort)
      yield* host.put(
        rawDocument({
          volumes: [rawVolume("app-1", { desiredState: "absent" }), rawVolume("app-2")],
          instances: [rawInstance("app-2")]
        })
      )
      yield* host.untilState("app-2", "running")
    })
  )
})

/** What a start does one after the other, and may stand still at. */
const steps = ["attach", "boot", "booted", "connect", "hand-over"] as const
type Step = (typeof steps)[number] | "http"
const subjectOf = (step: Step) => (step === "attach" ? "slot 0" : "app-1")

/** A host on which the start of the app stands at the step until the gate is opened. */
const standingAt = Effect.fnUntraced(function* (step: Step) {
  const host = yield* makeHost()
  const gate = yield* Deferred.make<void>()
  host.machine.next(step, subjectOf(step), { stallUntil: gate })
  yield* host.start()
  yield* host.put(running("app-1"))
  yield* host.until(`it stands at ${step}`, () => host.machine.callsOf(step, subjectOf(step)).length > 0)
  return { host, gate }
})

describe("a daemon that ends", () => {
  it.effect("leaves its microVMs running, and the next one takes them up without a second boot", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const process = host.machine.machineOf("app-1")?.record.process
      const converged = host.instanceOf("app-1")?.convergedAt
      yield* host.stop()
      assert.strictEqual(host.machine.machines.length, 1)
      const before = host.reporter.reports.length
      yield* host.start()
      yield* host.until("the new daemon reports", () => host.reporter.reports.length > before)
      yield* host.untilState("app-1", "running")
      assert.deepStrictEqual(host.machine.machineOf("app-1")?.record.process, process)
      assert.strictEqual(host.machine.callsOf("boot", "app-1").length, 1)
      assert.strictEqual(host.instanceOf("app-1")?.convergedAt, converged)
    })
  )

  it.effect("converges on the document in its notes when the file is gone", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* host.stop()
      host.source.current = { kind: "absent" }
      yield* host.start()
      yield* host.until("the daemon reports", () => host.report()?.state === "ready")
      assert.strictEqual(host.machine.machines.length, 1)
      assert.isDefined(host.report()?.acceptedDigest)
    })
  )

  it.effect("tells why it cannot take up a microVM and what ends that, until it can", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const pid = host.machine.machineOf("app-1")?.record.process?.pid
      yield* host.stop()
      host.machine.always("adopt", "app-1", { fail: "QEMU did not answer" })
      yield* host.start()
      yield* host.until("it is told", () => host.instanceOf("app-1")?.state === "pending")
      assert.match(
        host.instanceOf("app-1")?.message ?? "",
        new RegExp(
          `^its microVM cannot be taken up, which is tried every 5 s: .*QEMU did not answer; once its process has ended \\(kill ${pid}\\) the app is booted anew$`,
          "u"
        )
      )
      host.machine.always("adopt", "app-1", undefined)
      yield* host.untilState("app-1", "running")
      assert.isUndefined(host.instanceOf("app-1")?.message)
      assert.strictEqual(host.machine.callsOf("boot", "app-1").length, 1)
    })
  )

  it.effect("finds an app whose microVM ended meanwhile, and starts it", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* host.stop()
      yield* host.machine.end("app-1", { kind: "exited", code: 0 })
      yield* host.start()
      yield* host.until("it is booted again", () => host.machine.callsOf("boot", "app-1").length === 2)
      yield* host.untilState("app-1", "running")
    })
  )

  it.effect.each([...steps, "http"] as const)(
    "killed at the step %s of a boot, is followed by one that converges on one microVM",
    (step) =>
      Effect.gen(function* () {
        const { host } = yield* standingAt(step)
        yield* host.crash()
        yield* host.start()
        yield* host.untilState("app-1", "running")
        assert.strictEqual(host.machine.machines.length, 1)
        assert.isDefined(host.machine.machineOf("app-1")?.bootSpec)
        assert.strictEqual(host.instanceOf("app-1")?.hostPort, 21000)
      })
  )

  it.effect("killed while it makes a volume, is followed by one that makes it whole", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const stall = host.volumes.script.stall("provision", { times: 1 })
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* stall.reached
      yield* host.crash()
      yield* host.start()
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.volumes.formattings, 1)
    })
  )
})

describe("a start that stands still", () => {
  it.effect.each(steps)("at %s is given up when the document asks to stop, and leaves nothing", (step) =>
    Effect.gen(function* () {
      const { host } = yield* standingAt(step)
      yield* host.put(stopped("app-1"))
      yield* host.untilState("app-1", "stopped")
      assert.deepStrictEqual(host.machine.machines, [])
      yield* host.run("app-1")
      assert.strictEqual(host.machine.machines.length, 1)
    })
  )

  it.effect.each(steps)("at %s holds up no other app, and goes on when it can", (step) =>
    Effect.gen(function* () {
      const { host, gate } = yield* standingAt(step)
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-2", "running")
      assert.notStrictEqual(host.instanceOf("app-1")?.state, "running")
      yield* Deferred.succeed(gate, undefined)
      yield* host.untilState("app-1", "running")
    })
  )

  it.effect.each(steps)(
    "at %s ends with the daemon that is told to end, and the next one converges",
    (step) =>
      Effect.gen(function* () {
        const { host } = yield* standingAt(step)
        yield* host.stop()
        yield* host.start()
        yield* host.untilState("app-1", "running")
        assert.strictEqual(host.machine.machines.length, 1)
      })
  )

  it.effect.each(steps)("at %s and is interrupted by whoever runs it, is tried again", (step) =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.next(step, subjectOf(step), { interrupt: true })
      yield* host.start()
      yield* host.run("app-1")
      assert.strictEqual(host.machine.machines.length, 1)
    })
  )

  it.effect("at its end is ended by force when the guest does not power off", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.script("app-1", { shutdownAfterMs: "never" })
      yield* host.start()
      yield* host.run("app-1")
      yield* host.put(stopped("app-1"))
      yield* host.untilState("app-1", "stopping")
      yield* host.untilState("app-1", "stopped")
      assert.deepStrictEqual(host.machine.machines, [])
    })
  )
})
