import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { AppId, DesiredInstance, HostId, VolumeId } from "../../../src/document/schema.ts"
import type { AppRecord, HostState, VolumeRecord } from "../../../src/services/HostState.ts"
import type { InstanceChanges } from "../reconcile/documents.ts"
import { rawDocument, rawInstance, rawVolume, volumeOf } from "../reconcile/documents.ts"
import { makeHost } from "./harness.ts"

const MIB = 2 ** 20

const app = (appId: string, slot: number, changes?: Partial<AppRecord>): AppRecord => ({
  appId: AppId.make(appId),
  slot,
  attempts: 0,
  restartCount: 0,
  ...changes
})

const booted = (appId: string, changes?: InstanceChanges) =>
  Schema.decodeUnknownSync(DesiredInstance)(rawInstance(appId, changes))

const volume = (appId: string, state: VolumeRecord["state"] = "ready"): VolumeRecord => ({
  volumeId: VolumeId.make(volumeOf(appId)),
  appId: AppId.make(appId),
  sizeBytes: 64 * MIB,
  state
})

const accepted = (state: HostState["Service"], document: unknown) =>
  state.accept({ hostId: HostId.make("host-1"), digest: "d".repeat(64), text: JSON.stringify(document) })

interface PlannedApp {
  readonly appId: string
  readonly actions: ReadonlyArray<{ readonly kind: string; readonly [key: string]: unknown }>
  readonly runs: boolean
  readonly notes: ReadonlyArray<string>
}

type Host = Effect.Success<ReturnType<typeof makeHost>>

const planned = Effect.fnUntraced(function* (host: Host, document: unknown) {
  const file = yield* host.write("next.json", JSON.stringify(document))
  const { code, err, out } = yield* host.run("plan", "--json", file)
  assert.strictEqual(err, "")
  assert.strictEqual(code, 0)
  return JSON.parse(out) as {
    readonly apps: ReadonlyArray<PlannedApp>
    readonly counts: Readonly<Record<string, number>>
  } & Readonly<Record<string, unknown>>
})

const text = Effect.fnUntraced(function* (host: Host, document: unknown) {
  const file = yield* host.write("next.json", JSON.stringify(document))
  const { code, out } = yield* host.run("plan", file)
  assert.strictEqual(code, 0)
  return out.replaceAll(file, "next.json")
})

const one = (app: ReturnType<typeof rawInstance>, vol = rawVolume(app.appId)) =>
  rawDocument({ volumes: [vol], instances: [app] })

/** A host that runs `shop`, booted from `dep-1`, and says so in its notes. */
const running = Effect.fnUntraced(function* (changes?: InstanceChanges) {
  const host = yield* makeHost()
  const machine = yield* host.machine(AppId.make("shop"), 0)
  yield* host.note((state) =>
    Effect.gen(function* () {
      yield* accepted(state, one(rawInstance("shop", changes)))
      yield* state.claimSlot(app("shop", 0, { instance: booted("shop", changes), machine, attempts: 1 }))
      yield* state.saveVolume(volume("shop"))
    })
  )
  return host
})

/** The files below a folder, with the times of their last changes and their sizes. */
const filesIn = (folder: string) =>
  Effect.promise(async () => {
    const names = (await fs.readdir(folder, { recursive: true })).sort()
    return Promise.all(
      names.map(async (name) => {
        const { mtimeMs, size } = await fs.stat(path.join(folder, name))
        return [name, mtimeMs, size]
      })
    )
  })

describe("nibrunnerd plan", () => {
  it.effect("takes a host on which no daemon has run for an empty one, and leaves nothing on it", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      assert.strictEqual(
        yield* text(host, one(rawInstance("shop"))),
        [
          "next.json on this host, on which no daemon has run yet:",
          "",
          "shop",
          "  + create volume shop-vol, 64 MiB",
          "  + boot dep-1: it is new on this host",
          "",
          "1 app: 1 create-volume, 1 boot"
        ].join("\n")
      )
      const left = yield* Effect.promise(() => fs.readdir(host.folder))
      assert.sameMembers(left, ["config.toml", "next.json"])
    })
  )

  it.effect("says nothing is to be done where the document is the one in force", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const plan = yield* planned(host, one(rawInstance("shop")))
      assert.deepStrictEqual(plan.apps, [{ appId: "shop", actions: [], runs: true, notes: [] }])
      assert.deepInclude(plan.inForce as object, { digest: "d".repeat(64), same: true })
      assert.strictEqual(plan.counts.nothing, 1)
      const shown = yield* text(host, one(rawInstance("shop")))
      assert.include(shown, "is the document in force")
      assert.include(shown, "nothing to do for shop")
    })
  )

  it.effect("replaces what runs when deploymentId changes, and says what else does", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const next = rawInstance("shop", {
        deploymentId: "dep-2",
        config: {
          httpPort: 8080,
          command: { ...rawInstance("x").config.command, environment: { KEY: "hunter2" } }
        }
      })
      const plan = yield* planned(host, one(next))
      assert.deepStrictEqual(plan.apps[0]?.actions, [
        {
          kind: "replace",
          fromDeploymentId: "dep-1",
          toDeploymentId: "dep-2",
          changes: ["config.httpPort", "config.command.environment.KEY"]
        }
      ])
      const shown = yield* text(host, one(next))
      assert.include(shown, "~ replace dep-1 by dep-2: deploymentId changes; also config.httpPort")
      assert.notInclude(shown + JSON.stringify(plan), "hunter2")
    })
  )

  it.effect("does nothing about a configuration that changes under the same deploymentId, and says why", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const next = rawInstance("shop", { config: { httpPort: 8080 } })
      assert.deepStrictEqual((yield* planned(host, one(next))).apps, [
        {
          appId: "shop",
          actions: [],
          runs: true,
          notes: ["taken up with the next deploymentId only: config.httpPort"]
        }
      ])
      assert.include(yield* text(host, one(next)), "shop\n  = nothing\n    taken up with the next")
    })
  )

  it.effect("takes hostnames up at once", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const hostnames = [{ hostname: "other.example.com", kind: "platform" as const }]
      assert.deepStrictEqual(
        (yield* planned(host, one(rawInstance("shop", { hostnames })))).apps[0]?.actions,
        [{ kind: "update", changes: ["hostnames"] }]
      )
    })
  )

  it.effect("restarts what its notes say runs and does not", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      yield* host.note((state) =>
        Effect.gen(function* () {
          const process = { pid: 2 ** 22 - 1, hostBootId: "0", startTime: 1 }
          const machine = {
            machineId: "f".repeat(16),
            appId: AppId.make("shop"),
            slot: 0,
            guestImageVersion: "1",
            process
          }
          yield* state.claimSlot(app("shop", 0, { instance: booted("shop"), machine, attempts: 1 }))
          yield* state.saveVolume(volume("shop"))
        })
      )
      assert.deepStrictEqual((yield* planned(host, one(rawInstance("shop")))).apps[0]?.actions, [
        { kind: "restart", deploymentId: "dep-1", reason: "its microVM runs no more" }
      ])
    })
  )

  it.effect(
    "restarts what has failed when its restart policy allows, and never when its restarts are used up",
    () =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        const failure = { reason: "the guest is gone", at: 0, deploymentId: booted("shop").deploymentId }
        const failed = (attempts: number) =>
          host.note((state) =>
            Effect.andThen(
              state.saveApp(app("shop", 0, { instance: booted("shop"), attempts, failure })),
              state.saveVolume(volume("shop"))
            )
          )
        yield* failed(2)
        assert.deepStrictEqual((yield* planned(host, one(rawInstance("shop")))).apps[0]?.actions, [
          {
            kind: "restart",
            deploymentId: "dep-1",
            reason: "the guest is gone",
            notBefore: "1970-01-01T00:00:02.000Z"
          }
        ])
        yield* failed(4)
        const [shop] = (yield* planned(host, one(rawInstance("shop")))).apps
        assert.deepStrictEqual(shop?.actions, [])
        assert.match(shop?.notes[0] ?? "", /all 3 restarts are used up after 4 starts \(the guest is gone\)/u)
      })
  )

  it.effect("stops what is dropped and keeps its volume", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const plan = yield* planned(host, rawDocument({ volumes: [rawVolume("shop")] }))
      assert.deepStrictEqual(plan.apps[0], {
        appId: "shop",
        actions: [
          { kind: "stop", reason: "the document does not name the instance" },
          { kind: "forget", reason: "its log goes; its slot and its volumes stay" }
        ],
        runs: false,
        notes: []
      })
    })
  )

  it.effect("marks the deletion of a volume: its data is lost", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const next = rawDocument({ volumes: [rawVolume("shop", { desiredState: "absent" })] })
      const plan = yield* planned(host, next)
      assert.deepStrictEqual(
        plan.apps[0]?.actions.find(({ kind }) => kind === "delete-volume"),
        { kind: "delete-volume", volumeId: "shop-vol", sizeBytes: 64 * MIB, dataLost: true }
      )
      const file = yield* host.write("next.json", JSON.stringify(next))
      const { out } = yield* host.runOn({ colours: true }, "plan", file)
      assert.include(out, "\x1b[31m  - delete volume shop-vol, 64 MiB: ITS DATA IS LOST\x1b[0m")
    })
  )

  it.effect("keeps a volume that the document does not name, and says so", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const plan = yield* planned(host, rawDocument())
      assert.deepStrictEqual(plan.apps[0]?.notes, ["volume shop-vol is kept: the document does not name it"])
      assert.isUndefined(plan.apps[0]?.actions.find(({ kind }) => kind === "delete-volume"))
    })
  )

  it.effect("grows a volume when its app boots next, and shrinks none", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const larger = rawVolume("shop", { sizeBytes: 128 * MIB })
      assert.match(
        (yield* planned(host, one(rawInstance("shop"), larger))).apps[0]?.notes[0] ?? "",
        /^volume shop-vol: grows from 67108864 to 134217728 bytes when its app boots next/u
      )
      const replaced = yield* planned(host, one(rawInstance("shop", { deploymentId: "dep-2" }), larger))
      assert.deepStrictEqual(
        replaced.apps[0]?.actions.map(({ kind }) => kind),
        ["grow-volume", "replace"]
      )
      const smaller = rawVolume("shop", { sizeBytes: 32 * MIB })
      const refused = yield* planned(host, one(rawInstance("shop", { deploymentId: "dep-2" }), smaller))
      assert.deepStrictEqual(
        refused.apps[0]?.actions.map(({ kind }) => kind),
        ["replace", "refuse-volume"]
      )
      assert.match(
        String(refused.apps[0]?.actions[1]?.reason),
        /67108864 bytes.*33554432, and a volume never shrinks/u
      )
    })
  )

  it.effect("says what this host refuses, and that what is up runs on", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const next = rawInstance("shop", {
        deploymentId: "dep-2",
        config: { resources: { vcpuCount: 4096, memoryMib: 256 } }
      })
      const [shop] = (yield* planned(host, one(next))).apps
      assert.deepStrictEqual(
        shop?.actions.map(({ kind }) => kind),
        ["refuse"]
      )
      assert.match(String(shop?.actions[0]?.reason), /vcpuCount is 4096, but this host has/u)
      assert.include(shop?.notes ?? [], "its microVM runs on as it booted")
      assert.isTrue(shop?.runs)
    })
  )

  it.effect("names the apps that get no slot", () =>
    Effect.gen(function* () {
      const host = yield* makeHost({ max_apps: "1" })
      const resources = { vcpuCount: 1, memoryMib: 128 }
      const plan = yield* planned(
        host,
        rawDocument({
          volumes: [rawVolume("a"), rawVolume("b")],
          instances: [
            rawInstance("a", { config: { resources } }),
            rawInstance("b", { config: { resources } })
          ]
        })
      )
      assert.deepStrictEqual(plan.apps[1]?.actions.at(-1), {
        kind: "wait",
        for: "slot",
        reason: "no slot is left: all 1 of max_apps are taken"
      })
      assert.strictEqual(plan.counts.wait, 1)
    })
  )

  it.effect("lists the problems of a document that is refused, as check does, and exits with 1", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const bad = JSON.stringify(one(rawInstance("shop", { config: { httpPort: 0 } })), null, 2)
      const file = yield* host.write("bad.json", bad)
      const checked = yield* host.run("check", file)
      const { code, out } = yield* host.run("plan", file)
      assert.strictEqual(code, 1)
      assert.strictEqual(out, checked.out)
      assert.include(out, "httpPort is 0")
      const json = yield* host.run("plan", "--json", file)
      assert.strictEqual(json.code, 1)
      assert.strictEqual(json.out, (yield* host.run("check", "--json", file)).out)
      assert.isFalse(JSON.parse(json.out).valid)
    })
  )

  it.effect("changes nothing beside a running daemon's notes", () =>
    Effect.gen(function* () {
      const host = yield* running()
      const before = yield* filesIn(host.stateDir)
      yield* planned(host, one(rawInstance("shop", { deploymentId: "dep-2" })))
      const after = yield* filesIn(host.stateDir)
      assert.deepStrictEqual(after, before)
    })
  )

  it.effect("says in one sentence what is missing: the document, or its name", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const none = yield* host.run("plan", path.join(host.folder, "none.json"))
      assert.strictEqual(none.code, 1)
      assert.match(none.err, /^nibrunnerd: the document .*none\.json cannot be read: there is no such file$/u)
      const unnamed = yield* host.run("plan")
      assert.strictEqual(unnamed.code, 2)
      assert.strictEqual(unnamed.out, "")
      assert.include(unnamed.err, "FILE")
      assert.include(unnamed.err, "nibrunnerd plan --help")
    })
  )

  it.effect("lets no document steer the terminal, in words or as JSON", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const check = { ...rawInstance("x").config.healthCheck, path: "no\u001b[2J\u009b31m\u202eslash" }
      const next = one(rawInstance("shop", { config: { healthCheck: check } }))
      const file = yield* host.write("next.json", JSON.stringify(next))
      for (const args of [[file], ["--json", file]]) {
        const { out } = yield* host.run("plan", ...args)
        assert.include(out, "healthCheck.path")
        assert.notMatch(out, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e]/u)
      }
    })
  )
})
