/** What is foreseen is what the real reconciler then does, on documents at random. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, Result } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import { decodeDocument } from "../../../src/document/decode.ts"
import type { HostDesiredState } from "../../../src/document/schema.ts"
import type { Action, AppForesight } from "../../../src/foresight/actions.ts"
import { foresee, type HostNow } from "../../../src/foresight/foresee.ts"
import { rawDocument, rawInstance, rawVolume, volumeOf } from "../reconcile/documents.ts"
import { type Host, makeHost } from "../reconcile/harness.ts"

const MIB = 2 ** 20
const RESERVED_MIB = 640
/** At most so many apps in a document. */
const APPS = 6

interface AppChoice {
  readonly instance:
    | {
        readonly deploymentId: string
        readonly desiredState: "running" | "on-request" | "stopped"
        readonly memories: ReadonlyArray<number>
        readonly httpPort: number
        readonly ports: number
        readonly extraHostname: boolean
      }
    | undefined
  readonly volume: "present" | "absent" | undefined
  readonly sizeBytes: number
}

interface Choices {
  readonly memories: ReadonlyArray<number>
  readonly volumes: ReadonlyArray<AppChoice["volume"]>
  readonly sizes: ReadonlyArray<number>
}

const any: Choices = {
  memories: [128, 256],
  volumes: ["present", "present", "present", "absent", undefined],
  sizes: [64 * MIB, 64 * MIB, 128 * MIB, 4096]
}

const appChoice = ({ memories, sizes, volumes }: Choices): fc.Arbitrary<AppChoice> =>
  fc.record({
    instance: fc.option(
      fc.record({
        deploymentId: fc.constantFrom("dep-1", "dep-2"),
        desiredState: fc.constantFrom("running", "running", "on-request", "stopped"),
        memories: fc.constant(memories),
        httpPort: fc.constantFrom(3000, 3001),
        ports: fc.constantFrom(0, 0, 0, 1),
        extraHostname: fc.boolean()
      }),
      { nil: undefined, freq: 5 }
    ),
    volume: fc.constantFrom(...volumes),
    sizeBytes: fc.constantFrom(...sizes)
  })

/** Fixed by the deployment: a start that waits for memory is told of no other size under the same one. */
const memoryOf = (memories: ReadonlyArray<number>, n: number, deploymentId: string): number =>
  memories[(7 * n + (deploymentId === "dep-1" ? 0 : 3)) % memories.length] ?? 0

const documentOf = (apps: ReadonlyArray<AppChoice>) =>
  rawDocument({
    volumes: apps.flatMap(({ instance, sizeBytes, volume }, n) => {
      // An instance whose volume is not named is a fault of the document.
      const desiredState = volume ?? (instance === undefined ? undefined : "present")
      return desiredState === undefined ? [] : [rawVolume(`app-${n}`, { desiredState, sizeBytes })]
    }),
    instances: apps.flatMap(({ instance }, n) => {
      if (instance === undefined) return []
      const { deploymentId, desiredState, extraHostname, httpPort, memories, ports } = instance
      const appId = `app-${n}`
      return [
        rawInstance(appId, {
          deploymentId,
          desiredState,
          hostnames: [
            { hostname: `${appId}.example.com`, kind: "platform" },
            ...(extraHostname ? [{ hostname: `${appId}.example.org`, kind: "custom" as const }] : [])
          ],
          config: {
            httpPort,
            resources: { vcpuCount: 1, memoryMib: memoryOf(memories, n, deploymentId) },
            ports: Array.from({ length: ports }, () => ({ name: "game", guestPort: 4000 }))
          }
        })
      ]
    })
  })

const decoded = (raw: unknown): HostDesiredState =>
  Result.getOrThrow(decodeDocument(new TextEncoder().encode(JSON.stringify(raw))))

interface Seen {
  readonly machines: ReadonlyMap<
    string,
    { readonly machineId: string; readonly deploymentId: string | undefined }
  >
  readonly volumes: ReadonlyMap<string, number>
  readonly boots: number
  readonly records: ReadonlyMap<string, unknown>
}

const look = (host: Host): Seen => ({
  machines: new Map(
    host.machine.machines.map(({ record: { appId, machineId } }) => [
      appId,
      { machineId, deploymentId: host.state.apps.get(appId)?.instance?.deploymentId }
    ])
  ),
  volumes: new Map([...host.volumes.volumes].map(([id, { sizeBytes }]) => [id, sizeBytes])),
  boots: host.machine.callsOf("boot").length,
  records: new Map(host.state.apps)
})

const now = Effect.clockWith((clock) => clock.currentTimeMillis)

const hostNow = Effect.fnUntraced(function* (host: Host, document: HostDesiredState, options: Options) {
  return {
    now: yield* now,
    document,
    records: structuredClone([...host.state.apps.values()]),
    volumes: structuredClone([...host.state.volumes.values()]),
    up: new Set(host.machine.machines.map(({ record }) => record.appId)),
    limits: { servesHttp: true, rawPortsPerGuest: 0, vcpuCount: 4, memoryMib: options.memoryMib },
    maxApps: options.maxApps
  } satisfies HostNow
})

const kinds = ({ actions }: AppForesight) => actions.map(({ kind }) => kind)

const only = <K extends Action["kind"]>({ actions }: AppForesight, kind: K) =>
  actions.find((action): action is Extract<Action, { kind: K }> => action.kind === kind)

/** Compares one app's future with what became of it. */
const compare = (foreseen: AppForesight, before: Seen, after: Seen, host: Host) => {
  const { appId } = foreseen
  const told = JSON.stringify(foreseen)
  const [was, is] = [before.machines.get(appId), after.machines.get(appId)]
  const replaced = only(foreseen, "replace")
  const started = only(foreseen, "boot") ?? only(foreseen, "restart")
  if (replaced !== undefined) {
    assert.strictEqual(was?.deploymentId, replaced.fromDeploymentId, told)
    assert.strictEqual(is?.deploymentId, replaced.toDeploymentId, told)
    assert.notStrictEqual(is?.machineId, was?.machineId, told)
  } else if (started !== undefined) {
    assert.isUndefined(was, told)
    assert.strictEqual(is?.deploymentId, started.deploymentId, told)
  } else if (only(foreseen, "stop") !== undefined) {
    assert.isDefined(was, told)
    assert.isUndefined(is, told)
  } else {
    assert.deepStrictEqual(is, was, told)
  }
  assert.strictEqual(is !== undefined, foreseen.runs, told)
  const volumeId = volumeOf(appId)
  const [had, has] = [before.volumes.get(volumeId), after.volumes.get(volumeId)]
  const created = only(foreseen, "create-volume")
  const grown = only(foreseen, "grow-volume")
  if (created !== undefined) {
    assert.isUndefined(had, told)
    assert.strictEqual(has, created.sizeBytes, told)
  } else if (grown !== undefined) {
    assert.strictEqual(had, grown.fromBytes, told)
    assert.strictEqual(has, grown.toBytes, told)
  } else if (only(foreseen, "delete-volume") !== undefined) {
    assert.isUndefined(has, told)
  } else {
    assert.strictEqual(has, had, told)
  }
  const report = host.instanceOf(appId)
  const volume = host.report()?.volumes.find((one) => one.volumeId === volumeId)
  const refused = only(foreseen, "refuse")
  if (refused !== undefined) {
    // Where an older release is up the report says so too.
    const serving = is !== undefined && is.deploymentId !== report?.deploymentId
    const expected = serving ? `${refused.reason}. Deployment ${is.deploymentId} serves on` : refused.reason
    assert.strictEqual(report?.message, expected, told)
  } else if (is === undefined && report?.state === "failed" && only(foreseen, "wait")?.for !== "slot")
    assert.isTrue(
      kinds(foreseen).includes("refuse-volume") || foreseen.notes.length > 0,
      `${report.message} ${told}`
    )
  const refusedVolume = only(foreseen, "refuse-volume")
  assert.strictEqual(volume?.state === "failed" ? volume.message : undefined, refusedVolume?.reason, told)
  const waits = only(foreseen, "wait")
  if (waits?.for === "memory") {
    assert.strictEqual(report?.state, "pending", told)
    assert.include(report?.message ?? "", /\d+ MiB short/u.exec(waits.reason)?.[0] ?? "?", told)
  }
  if (waits?.for === "slot") assert.include(report?.message ?? "", "no slot is left", told)
}

type Compare = (foreseen: ReadonlyArray<AppForesight>, before: Seen, after: Seen, host: Host) => void

const compareAll: Compare = (foreseen, before, after, host) => {
  for (const app of foreseen) compare(app, before, after, host)
}

const compareBoots: Compare = (foreseen, before, after, host) => {
  compareAll(foreseen, before, after, host)
  const starts = foreseen.flatMap(kinds).filter((kind) => ["boot", "replace", "restart"].includes(kind))
  assert.strictEqual(after.boots - before.boots, starts.length)
}

/** Apps that ask for the last slot at the same time get it in no order that the document tells. */
const compareSlots: Compare = (foreseen, _, __, host) => {
  const without = foreseen.filter((app) => only(app, "wait")?.for === "slot").length
  const reported = host.report()?.instances.filter(({ message }) => message?.includes("no slot is left"))
  assert.strictEqual(reported?.length, without)
}

interface Options {
  readonly compare?: Compare
  readonly memoryMib: number
  readonly maxApps: number
}

const settle = TestClock.adjust("90 seconds")

const agrees = (steps: ReadonlyArray<ReadonlyArray<AppChoice>>, options: Options) =>
  Effect.gen(function* () {
    const host = yield* makeHost({
      machine: { memoryMib: RESERVED_MIB + options.memoryMib, vcpuCount: 4 },
      settings: { maxApps: options.maxApps, rawPortsPerGuest: 0 }
    })
    // As on a real host: all that needs no stop is under way before the first microVM has stopped.
    for (let n = 0; n < APPS; n++) host.machine.script(`app-${n}`, { shutdownAfterMs: 3000 })
    yield* host.start()
    let inForce = decoded(rawDocument())
    for (const step of steps) {
      const raw = documentOf(step)
      const document = decoded(raw)
      const foreseen = foresee(yield* hostNow(host, inForce, options), document)
      const before = look(host)
      yield* host.put(raw)
      yield* settle
      const after = look(host)
      ;(options.compare ?? compareAll)(foreseen, before, after, host)
      assert.deepStrictEqual(
        new Set(
          [...after.machines.keys(), ...after.records.keys()].filter(
            (id) => !foreseen.some(({ appId }) => appId === id)
          )
        ),
        new Set()
      )
      inForce = document
    }
  }).pipe(Effect.scoped)

const holds = (
  documents: ReadonlyArray<{ readonly apps: number; readonly choices: Choices }>,
  options: Options
): Promise<void> => {
  const steps = documents.map(({ apps, choices }) =>
    fc.array(appChoice(choices), { minLength: apps, maxLength: apps })
  )
  return fc.assert(
    fc.asyncProperty(fc.tuple(...steps), (chosen) =>
      Effect.runPromise(agrees(chosen, options).pipe(Effect.provide([TestClock.layer(), Logger.layer([])])))
    ),
    { numRuns: 40 }
  )
}

describe("what is foreseen", () => {
  it("is what the reconciler does, document after document", () => {
    const document = { apps: 4, choices: any }
    return holds([document, document, document], { memoryMib: 4096, maxApps: 16, compare: compareBoots })
  })

  it("tells who gets the memory of a host that has too little, and how much the others lack", () => {
    const document = { apps: 6, choices: { ...any, memories: [100, 300, 500, 900, 1200], sizes: [64 * MIB] } }
    return holds([document, document, document], { memoryMib: 1000, maxApps: 16 })
  })

  it("tells how many apps get no slot on a host that has too few", () => {
    const choices: Choices = { ...any, volumes: ["present"], sizes: [64 * MIB] }
    return holds(
      [
        { apps: 3, choices },
        { apps: APPS, choices }
      ],
      { memoryMib: 4096, maxApps: 3, compare: compareSlots }
    )
  })
})
