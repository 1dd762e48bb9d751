import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { readFileSync, readlinkSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { constants } from "node:os"
import { join, resolve } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Option, type Scope } from "effect"
import { chooseAccelerator } from "../../layers/hypervisor/qemu/accelerator.ts"
import { commandLine } from "../../layers/hypervisor/qemu/command-line.ts"
import { makeConfinement } from "../../layers/hypervisor/qemu/confinement/confinement.ts"
import { listVmms } from "../../layers/hypervisor/qemu/process.ts"
import { createRunDirectory, runDirectory } from "../../layers/hypervisor/qemu/run-directory.ts"
import { spawnVmm } from "../../layers/hypervisor/qemu/spawn.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import { GuestImage } from "../../src/services/GuestImage.ts"
import { Hypervisor, type MachineRecord } from "../../src/services/Hypervisor.ts"
import { hypervisorConformance } from "../conformance/hypervisor.ts"
import { volumeFile } from "../support/volume-file.ts"
import { guestImage, hello, machineSpec, processesOf, qemu, runtimeDirectory, tracesOf } from "./qemu.ts"

hypervisorConformance(
  "QEMU",
  Effect.map(runtimeDirectory, (directory) => ({
    layer: qemu(directory),
    spec: (appId, slot) => Effect.orDie(machineSpec(directory, appId, slot)),
    spoil: (spec) => ({
      spec: { ...spec, image: { ...spec.image, kernel: `${directory}/no-kernel` } },
      reason: /no-kernel.*(?:No such file|does not exist)/u
    }),
    hello: (machine) => Effect.asVoid(hello(machine)),
    moments: () => [0, 3, 10, 30, 60, 100, 200, 400, 1000].map((ms) => Effect.sleep(ms)),
    runs: (machineId) =>
      Effect.sync(() => processesOf(directory).some(({ command }) => command.includes(machineId))),
    strike: (record) =>
      Effect.gen(function* () {
        process.kill(record.process?.pid ?? 0, "SIGKILL")
        while (processesOf(directory).some(({ pid }) => pid === record.process?.pid)) yield* Effect.sleep(5)
      }),
    traces: Effect.sync(() => tracesOf(directory))
  }))
)

const test = (
  sentence: string,
  body: (directory: string) => Effect.Effect<void, unknown, Hypervisor | Scope.Scope>
) =>
  it.live(sentence, () =>
    Effect.flatMap(runtimeDirectory, (directory) => body(directory).pipe(Effect.provide(qemu(directory))))
  )

const service = <A, E, R>(use: (hypervisor: Hypervisor["Service"]) => Effect.Effect<A, E, R>) =>
  Hypervisor.use(use)

/** Another process that boots a machine in this runtime directory, says its record and stays. */
const daemonThatBoots = (directory: string) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, [resolve(import.meta.dirname, "booting-daemon.ts"), directory], {
        detached: true,
        stdio: ["ignore", "pipe", "inherit"]
      })
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )

const recordFrom = (child: ChildProcess) =>
  Effect.callback<MachineRecord, string>((resume) => {
    let said = ""
    child.stdout?.on("data", (bytes) => {
      said += String(bytes)
      const line = said.split("\n").find((candidate) => candidate.startsWith("record "))
      if (line !== undefined && said.endsWith("\n")) resume(Effect.succeed(JSON.parse(line.slice(7))))
    })
    child.once("exit", () => resume(Effect.fail(`the daemon ended: ${said}`)))
  })

describe("a microVM by QEMU", () => {
  test("outlives the death of its daemon and of the daemon's whole process group", (directory) =>
    Effect.gen(function* () {
      const child = yield* daemonThatBoots(directory)
      const record = yield* recordFrom(child)
      const ended = Effect.promise(() => once(child, "exit"))
      process.kill(-(child.pid ?? 0), "SIGKILL")
      yield* ended
      const machine = Option.getOrThrow(yield* service((hypervisor) => hypervisor.adopt(record)))
      assert.deepStrictEqual(machine.record, record)
      yield* hello(machine)
      // its stderr has no reader any more: a warning must not end it
      const status = readFileSync(`/proc/${record.process?.pid}/status`, "utf8")
      const ignored = BigInt(`0x${status.match(/^SigIgn:\s*([0-9a-f]+)$/mu)?.[1]}`)
      assert.strictEqual((ignored >> BigInt(constants.signals.SIGPIPE - 1)) & 1n, 1n)
      yield* service((hypervisor) => hypervisor.kill(record))
      assert.strictEqual((yield* Deferred.await(machine.exit)).kind, "gone")
      assert.deepStrictEqual(yield* Effect.sync(() => tracesOf(directory)), [])
    }))

  test("runs once it is adopted, when its daemon died before it had let it run", (directory) =>
    Effect.gen(function* () {
      const spec = yield* machineSpec(directory, "web", 0)
      const run = runDirectory(directory, 0)
      yield* createRunDirectory(run, spec)
      const { jail, tscProbe } = yield* GuestImage
      const accelerator = yield* chooseAccelerator(directory, tscProbe)
      const confinement = yield* makeConfinement({
        runtimeDir: directory,
        binary: "qemu-system-x86_64",
        jail,
        accelerator
      })
      const line = commandLine(spec, run, accelerator)
      const { program, args } = yield* confinement.prepare(spec, run, undefined, line)
      yield* spawnVmm(program, args)
      // What confines it bears its command line before it, and makes its sockets.
      const isQemu = () =>
        listVmms(directory).some(({ process }) =>
          readlinkSync(`/proc/${process.pid}/exe`).endsWith("/qemu-system-x86_64")
        )
      while (!isQemu()) yield* Effect.sleep(5)
      const { machineId, appId, slot, image } = spec
      const noted = { machineId, appId, slot, guestImageVersion: image.version }
      const machine = Option.getOrThrow(yield* service((hypervisor) => hypervisor.adopt(noted)))
      yield* hello(machine)
      yield* service((hypervisor) => hypervisor.kill(noted))
    }).pipe(Effect.provide([guestImage, NodeServices.layer])))

  test("ends with the words of a kernel that panics", (directory) =>
    Effect.gen(function* () {
      const spec = yield* machineSpec(directory, "web", 0)
      const initramfs = join(directory, "no-initramfs")
      writeFileSync(initramfs, "this is no initramfs")
      const machine = yield* service((hypervisor) =>
        hypervisor.boot({ ...spec, image: { ...spec.image, initramfs } })
      )
      const exit = yield* Deferred.await(machine.exit)
      assert.deepInclude(exit, { kind: "exited", code: 0 })
      assert.match("reason" in exit ? (exit.reason ?? "") : "", /^the guest's kernel panicked: .*root fs/u)
      yield* service((hypervisor) => hypervisor.kill(machine.record))
    }))

  test("does not start on a port of the host that is taken, and names it", (directory) =>
    Effect.gen(function* () {
      const spec = yield* machineSpec(directory, "web", 40)
      yield* Effect.acquireRelease(
        Effect.callback<ReturnType<typeof createServer>>((resume) => {
          const server = createServer()
          server.listen(3000, slotAddresses(40).loopback, () => resume(Effect.succeed(server)))
        }),
        (server) => Effect.sync(() => server.close())
      )
      const error = yield* Effect.flip(
        service((hypervisor) => hypervisor.boot({ ...spec, link: { ...spec.link, ports: [3000] } }))
      )
      assert.include(error.message, `port 3000 of ${slotAddresses(40).loopback}`)
      assert.include(error.message, "another program listens there")
      assert.deepStrictEqual(tracesOf(directory), [])
    }))

  test("does not start on a volume that another one has open", (directory) =>
    Effect.gen(function* () {
      const first = yield* service((hypervisor) =>
        Effect.flatMap(machineSpec(directory, "web", 0), hypervisor.boot)
      )
      const second = yield* machineSpec(directory, "web", 1)
      const error = yield* Effect.flip(service((hypervisor) => hypervisor.boot(second)))
      assert.include(error.message, `its volume ${volumeFile(second.volume)} is in use by another process`)
      yield* service((hypervisor) => hypervisor.kill(first.record))
    }))

  test("does not start in a slot that another one holds", (directory) =>
    Effect.gen(function* () {
      const first = yield* service((hypervisor) =>
        Effect.flatMap(machineSpec(directory, "web", 0), hypervisor.boot)
      )
      const second = yield* machineSpec(directory, "shop", 0)
      const error = yield* Effect.flip(service((hypervisor) => hypervisor.boot(second)))
      assert.include(error.message, `slot 0 is held by microVM ${first.record.machineId}`)
      yield* hello(first)
      yield* service((hypervisor) => hypervisor.kill(first.record))
    }))

  it.live("is not tried with a QEMU that is not installed: its name and the config key are told", () =>
    Effect.gen(function* () {
      const directory = yield* runtimeDirectory
      const error = yield* Effect.flip(
        Hypervisor.useSync((hypervisor) => hypervisor.version).pipe(
          Effect.provide(qemu(directory, "qemu-of-nowhere"))
        )
      )
      assert.include(error.message, "qemu-of-nowhere is not installed")
      assert.include(error.message, "hypervisor.binary")
    })
  )
})
