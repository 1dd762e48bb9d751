/** The sleep and wake of real microVMs, with the test program in them. */
import { execFileSync } from "node:child_process"
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, statSync } from "node:fs"
import * as http from "node:http"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Option, Schedule, type Scope } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import { Guest } from "../../src/services/Guest.ts"
import { Hypervisor, type Machine, type MachineSpec } from "../../src/services/Hypervisor.ts"
import { bootSpec } from "../support/boot-spec.ts"
import { buildTenant } from "../tenant/build.ts"
import { machineSpec, PATIENCE_MS, processesOf, qemu, runtimeDirectory, tracesOf } from "./qemu.ts"

const SLOT = 9
const LEASE_MS = 30_000

/** A squashfs that holds the test program. */
const tenantLayer = (directory: string) =>
  Effect.map(buildTenant, (program) => {
    const tree = join(directory, "tree")
    mkdirSync(join(tree, "app"), { recursive: true })
    chmodSync(tree, 0o755)
    copyFileSync(program, join(tree, "app/server"))
    chmodSync(join(tree, "app/server"), 0o755)
    const layer = join(directory, "tenant.squashfs")
    execFileSync("mksquashfs", [tree, layer, "-quiet", "-no-progress"])
    return layer
  })

const askOnce = (path: string) =>
  Effect.callback<string, Error>((resume) => {
    const request = http.get(
      { host: slotAddresses(SLOT).loopback, port: 3000, path, agent: false },
      (response) => {
        let body = ""
        response.on("data", (text) => {
          body += text
        })
        response.on("end", () => resume(Effect.succeed(body.trim())))
      }
    )
    request.on("error", (error) => resume(Effect.fail(error)))
    return Effect.sync(() => request.destroy())
  })

/** What the program answers; asked until there is an answer. */
const ask = (path: string) =>
  askOnce(path).pipe(
    Effect.timeout(5_000),
    Effect.retry({ schedule: Schedule.spaced(20), times: PATIENCE_MS / 20 })
  )

const hypervisor = <A, E, R>(use: (service: Hypervisor["Service"]) => Effect.Effect<A, E, R>) =>
  Hypervisor.use(use)

const place = (directory: string, deploymentId = "dep-1") => ({
  directory: join(directory, "snapshots", "web"),
  deploymentId
})

const talk = (machine: Machine) => Guest.use((guest) => guest.connect(machine, PATIENCE_MS))

let nextWake = 1
/** The spec of a machine that wakes: the same, with an id of its own. */
const again = (spec: MachineSpec): MachineSpec => ({
  ...spec,
  machineId: (process.pid * 65536 + 32768 + nextWake++).toString(16).padStart(16, "0")
})

/** Boots a machine that runs the test program, and waits for its first answer. */
const bootTenant = (directory: string, memoryMib = 128) =>
  Effect.gen(function* () {
    const plain = yield* machineSpec(directory, "web", SLOT)
    execFileSync("mke2fs", ["-q", "-F", "-t", "ext4", plain.volume.path])
    const layer = yield* tenantLayer(directory)
    const spec = { ...plain, memoryMib, layers: [layer], link: { ...plain.link, ports: [3000] } }
    const machine = yield* hypervisor((service) => service.boot(spec))
    const { guest: address, host: gateway } = slotAddresses(SLOT)
    yield* Effect.scoped(
      Effect.flatMap(talk(machine), (session) =>
        session.handOver(
          bootSpec({
            network: { address, prefixLength: 30, gateway },
            layerCount: 1,
            program: "/app/server",
            hostTime: Date.now()
          })
        )
      )
    )
    assert.strictEqual(yield* ask("/healthz"), "200")
    return { machine, spec }
  })

const freeze = (machine: Machine) =>
  Effect.scoped(Effect.flatMap(talk(machine), (session) => session.freeze(LEASE_MS)))

/** As a host does it: freeze, then sleep. */
const sleep = (machine: Machine, directory: string) =>
  Effect.andThen(
    freeze(machine),
    hypervisor((service) => service.sleep(machine, place(directory)))
  )

const thaw = (machine: Machine) => Effect.scoped(Effect.flatMap(talk(machine), (session) => session.thaw))

/** As a host does it: wake, then thaw. */
const wake = (spec: MachineSpec, directory: string) =>
  Effect.tap(
    hypervisor((service) => service.wake(again(spec), place(directory))),
    thaw
  )

const kill = (machine: Machine) => hypervisor((service) => service.kill(machine.record))

const nothingIn = (directory: string) =>
  assert.deepStrictEqual(
    existsSync(join(directory, "snapshots")) ? readdirSync(join(directory, "snapshots")) : [],
    []
  )

const test = (
  sentence: string,
  body: (directory: string) => Effect.Effect<void, unknown, Hypervisor | Guest | Scope.Scope>
) =>
  it.live(sentence, () =>
    Effect.gen(function* () {
      const directory = yield* runtimeDirectory
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          for (const { pid } of processesOf(directory)) process.kill(pid, "SIGKILL")
        })
      )
      yield* body(directory).pipe(Effect.provide([qemu(directory), layerVirtioSerialGuest]))
    })
  )

describe("a microVM that sleeps", () => {
  test("wakes with its memory, again and again, and in the right time", (directory) =>
    Effect.gen(function* () {
      const booted = yield* bootTenant(directory)
      let machine = booted.machine
      for (let round = 1; round <= 3; round++) {
        assert.strictEqual(yield* ask("/remember"), String(2 * round - 1))
        const record = yield* sleep(machine, directory)
        assert.strictEqual((yield* Deferred.await(machine.exit)).kind, "killed")
        assert.deepStrictEqual(tracesOf(directory), [])
        assert.isBelow(record.storedBytes, 128 * 2 ** 20)
        const kept = yield* hypervisor((service) => service.snapshot(place(directory).directory))
        assert.deepStrictEqual(Option.getOrThrow(kept), record)

        yield* Effect.sleep(1_500)
        machine = yield* wake(booted.spec, directory)
        nothingIn(directory)
        assert.strictEqual(yield* ask("/remember"), String(2 * round))
        assert.closeTo(Number(yield* ask("/time")), Date.now(), 1_000)
      }
      yield* kill(machine)
      assert.deepStrictEqual(tracesOf(directory), [])
    }))

  test("is a file of which no more lies on the disk than its memory has of pages that hold something", (directory) =>
    Effect.gen(function* () {
      const { machine } = yield* bootTenant(directory, 512)
      const record = yield* sleep(machine, directory)
      const memory = statSync(join(place(directory).directory, "memory"))
      assert.strictEqual(memory.size, 512 * 2 ** 20)
      assert.isBelow(memory.blocks * 512, 110 * 2 ** 20)
      assert.isAtMost(memory.blocks * 512, record.storedBytes + 2 ** 20)
    }))
})
