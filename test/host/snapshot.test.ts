/** The sleep and wake of real microVMs, with the test program in them. */
import { execFileSync, spawn, spawnSync } from "node:child_process"
import { copyFileSync, existsSync, mkdirSync, readdirSync, statSync } from "node:fs"
import * as http from "node:http"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Option, Queue, Schedule, type Scope } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import { type BootSpec, Guest } from "../../src/services/Guest.ts"
import {
  Hypervisor,
  type Machine,
  type MachineRecord,
  type MachineSpec,
  type SleepFailed
} from "../../src/services/Hypervisor.ts"
import { bootSpec } from "../support/boot-spec.ts"
import { volumeFile } from "../support/volume-file.ts"
import { tenantSquashfs } from "../tenant/build.ts"
import { machineSpec, PATIENCE_MS, processesOf, qemu, runtimeDirectory, tracesOf } from "./qemu.ts"

const SLOT = 9
const LEASE_MS = 30_000

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
const bootTenant = (
  directory: string,
  { memoryMib = 128, ...changes }: Partial<BootSpec> & { readonly memoryMib?: number } = {}
) =>
  Effect.gen(function* () {
    const plain = yield* machineSpec(directory, "web", SLOT)
    execFileSync("mke2fs", ["-q", "-F", "-t", "ext4", volumeFile(plain.volume)])
    const layer = yield* tenantSquashfs(directory)
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
            hostTime: Date.now(),
            ...changes
          })
        )
      )
    )
    if (changes.program === undefined) assert.strictEqual(yield* ask("/healthz"), "200")
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

const adopt = (record: MachineRecord) => hypervisor((service) => service.adopt(record))

/** Runs as a daemon of its own, which ends after it. */
const oneDaemon = <A, E, R>(directory: string, body: Effect.Effect<A, E, R>) =>
  body.pipe(Effect.scoped, Effect.provide(Layer.fresh(qemu(directory))))

/** Lets another process put a machine to sleep or wake it, and kills that so long after it has begun. */
const killedDaemon = (directory: string, step: "sleep" | "wake", task: object, afterMs: number) =>
  Effect.scoped(
    Effect.gen(function* () {
      const script = join(import.meta.dirname, "sleeping-daemon.ts")
      const child = yield* Effect.acquireRelease(
        Effect.sync(() =>
          spawn(process.execPath, [script, directory, step, JSON.stringify(task)], {
            stdio: ["ignore", "pipe", "inherit"]
          })
        ),
        (process) => Effect.sync(() => process.kill("SIGKILL"))
      )
      const ended = Effect.callback<void>((resume) => {
        child.once("close", () => resume(Effect.void))
      })
      const awaitEnd = yield* Effect.forkChild(ended, { startImmediately: true })
      yield* Effect.callback<void, string>((resume) => {
        let said = ""
        child.stdout.on("data", (bytes) => {
          said += String(bytes)
          if (said.includes("ready\n")) resume(Effect.void)
        })
        child.once("exit", () => resume(Effect.fail(`the daemon ended: ${said}`)))
      })
      yield* Effect.sleep(afterMs)
      child.kill("SIGKILL")
      yield* Fiber.join(awaitEnd)
    })
  )

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
      const { machine } = yield* bootTenant(directory, { memoryMib: 512 })
      const record = yield* sleep(machine, directory)
      const memory = statSync(join(place(directory).directory, "memory"))
      assert.strictEqual(memory.size, 512 * 2 ** 20)
      assert.isBelow(memory.blocks * 512, 110 * 2 ** 20)
      assert.closeTo(memory.blocks * 512, record.storedBytes, 2 ** 20)
    }))

  test("is found by the next daemon as it was, or runs on, wherever the sleep was when its daemon was killed", (directory) =>
    Effect.gen(function* () {
      const booted = yield* oneDaemon(directory, bootTenant(directory))
      let spec: MachineSpec = booted.spec
      let record = booted.machine.record
      let counter = 0
      for (const ms of [0, 30, 80, 130, 180, 230, 300, 500]) {
        yield* oneDaemon(
          directory,
          Effect.flatMap(adopt(record), (machine) => freeze(Option.getOrThrow(machine)))
        )
        yield* killedDaemon(directory, "sleep", { record, place: place(directory) }, ms)
        const woken = again(spec)
        record = yield* oneDaemon(
          directory,
          Effect.gen(function* () {
            const adopted = yield* adopt(record)
            const snapshot = yield* hypervisor((service) => service.snapshot(place(directory).directory))
            assert.strictEqual(Option.isSome(adopted), Option.isNone(snapshot), `after ${ms} ms`)
            const machine = Option.isSome(adopted)
              ? adopted.value
              : yield* hypervisor((service) => service.wake(woken, place(directory)))
            if (Option.isNone(adopted)) spec = woken
            yield* thaw(machine)
            counter += 1
            assert.strictEqual(yield* ask("/remember"), String(counter))
            nothingIn(directory)
            return machine.record
          })
        )
      }
      yield* hypervisor((service) => service.kill(record))
      assert.deepStrictEqual(tracesOf(directory), [])
    }))

  test("is woken by the next daemon, or runs, wherever the wake was when its daemon was killed", (directory) =>
    Effect.gen(function* () {
      const booted = yield* oneDaemon(directory, bootTenant(directory))
      const spec = booted.spec
      let record = booted.machine.record
      let counter = 0
      for (const ms of [0, 20, 50, 80, 110, 140, 180, 300, 600]) {
        yield* oneDaemon(
          directory,
          Effect.flatMap(adopt(record), (machine) => sleep(Option.getOrThrow(machine), directory))
        )
        const woken = again(spec)
        yield* killedDaemon(directory, "wake", { spec: woken, place: place(directory) }, ms)
        record = yield* oneDaemon(
          directory,
          Effect.gen(function* () {
            const { machineId, appId, slot, image } = woken
            const noted = { machineId, appId, slot, guestImageVersion: image.version }
            // a VMM that was started a moment ago does not listen yet
            const adopted = yield* adopt(noted).pipe(
              Effect.retry({ schedule: Schedule.spaced(20), times: PATIENCE_MS / 20 })
            )
            const machine = Option.isSome(adopted)
              ? adopted.value
              : yield* hypervisor((service) => service.wake(again(spec), place(directory)))
            yield* thaw(machine)
            counter += 1
            assert.strictEqual(yield* ask("/remember"), String(counter), `after ${ms} ms`)
            nothingIn(directory)
            return machine.record
          })
        )
      }
      yield* hypervisor((service) => service.kill(record))
      assert.deepStrictEqual(tracesOf(directory), [])
    }))

  test("runs on when the disk that it should sleep on is full, and sleeps when there is room again", (directory) =>
    Effect.gen(function* () {
      const { machine, spec } = yield* bootTenant(directory)
      const small = join(directory, "snapshots")
      mkdirSync(small)
      yield* Effect.acquireRelease(
        Effect.sync(() => execFileSync("mount", ["-t", "tmpfs", "-o", "size=100m", "small", small])),
        () => Effect.sync(() => execFileSync("umount", ["-l", small]))
      )
      const resize = (size: string) => execFileSync("mount", ["-o", `remount,size=${size}`, small])
      assert.strictEqual(yield* ask("/remember"), "1")
      const refused = yield* Effect.flip(sleep(machine, directory))
      assert.match(String((refused as Error).message), /has 0.10 GiB free, the snapshot may take 0.13 GiB/u)
      assert.isTrue((refused as SleepFailed).resumed)
      yield* thaw(machine)
      assert.strictEqual(yield* ask("/remember"), "2")

      // there is room when it begins, and none any more before it is done
      resize("256m")
      const shrinking = yield* Effect.forkChild(
        Effect.gen(function* () {
          while (!existsSync(join(small, ".pending-web"))) yield* Effect.yieldNow
          resize("24m")
        })
      )
      const error = yield* Effect.flip(sleep(machine, directory))
      yield* Fiber.join(shrinking)
      assert.include(String((error as Error).message), "is full")
      assert.isTrue((error as SleepFailed).resumed)
      yield* thaw(machine)
      assert.strictEqual(yield* ask("/remember"), "3")
      nothingIn(directory)

      resize("256m")
      yield* sleep(machine, directory)
      const woken = yield* wake(spec, directory)
      assert.strictEqual(yield* ask("/remember"), "4")
      yield* kill(woken)
    }))

  test("has on its disk what the program had written and not synced, whether it is woken or booted after", (directory) =>
    Effect.gen(function* () {
      const { machine, spec } = yield* bootTenant(directory, {
        program: "/bin/sh",
        args: ["-c", "echo kept > /srv/kept; echo written; exec sleep 100000"]
      })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const session = yield* talk(machine)
          while ((yield* Queue.take(session.events)).kind !== "output") yield* Effect.void
          yield* session.freeze(LEASE_MS)
        })
      )
      yield* hypervisor((service) => service.sleep(machine, place(directory)))
      const copy = join(directory, "copy.ext4")
      copyFileSync(volumeFile(spec.volume), copy)
      // what is committed lies in the journal
      spawnSync("e2fsck", ["-fy", copy])
      const printed = execFileSync("debugfs", ["-R", "cat /upper/srv/kept", copy], {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "ignore"]
      })
      assert.strictEqual(printed, "kept\n")
      const woken = yield* wake(spec, directory)
      yield* kill(woken)
    }))
})
