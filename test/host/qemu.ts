/** Real microVMs for tests: the guest image of this checkout, volumes and sockets in a directory of the test's own. */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { mkdtemp, rm, truncate, writeFile } from "node:fs/promises"
import { join, resolve } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { layerVerifiedGuestImage } from "../../layers/guest-image/verified.ts"
import { hierarchiesHere, openGroups } from "../../layers/hypervisor/qemu/confinement/cgroup.ts"
import { layerQemu } from "../../layers/hypervisor/qemu/layer.ts"
import type { AppId } from "../../src/document/schema.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import { Guest } from "../../src/services/Guest.ts"
import { GuestImage } from "../../src/services/GuestImage.ts"
import type { Machine, MachineSpec } from "../../src/services/Hypervisor.ts"
import type { UserLink } from "../../src/services/Network.ts"

/** How long a guest may take to come up on a machine without KVM that does much else. */
export const PATIENCE_MS = 120_000

const QEMU = "qemu-system-x86_64"

/** One build serves every test of a file: it reads and hashes all of the image. */
export const guestImage = layerVerifiedGuestImage(resolve(import.meta.dirname, "../../.nibrunner/guest"))

/** Ends what VMMs of a runtime directory still run, and removes their cgroups: a daemon leaves both to the next one. */
export const endMachines = (runtimeDir: string): Effect.Effect<void> =>
  Effect.gen(function* () {
    for (const { pid } of processesOf(runtimeDir)) process.kill(pid, "SIGKILL")
    const groups = yield* openGroups(runtimeDir, hierarchiesHere())
    yield* Effect.forEach(groups.list(), groups.remove)
    groups.close()
  }).pipe(Effect.ignore)

/** Short, because socket paths are; removed with the scope, and what runs in it ended. */
export const runtimeDirectory = Effect.acquireRelease(
  Effect.promise(() => mkdtemp("/tmp/nbq-")),
  (directory) =>
    Effect.andThen(
      endMachines(directory),
      Effect.promise(() => rm(directory, { recursive: true, force: true }))
    )
)

export const qemu = (runtimeDir: string, binary = QEMU) =>
  layerQemu({ binary, runtimeDir }).pipe(Layer.provide(guestImage), Layer.provide(NodeServices.layer))

/** Processes whose command line names the directory, as `pid: command line`. */
export const processesOf = (
  directory: string
): ReadonlyArray<{ readonly pid: number; readonly command: string }> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .flatMap((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")
        return command.includes(`${directory}/`) ? [{ pid: Number(pid), command }] : []
      } catch {
        return []
      }
    })

/** What microVMs have left under a runtime directory and among the processes. */
export const tracesOf = (runtimeDir: string): ReadonlyArray<string> => [
  ...processesOf(runtimeDir).map(({ pid, command }) => `process ${pid}: ${command.slice(0, 80)}`),
  ...(existsSync(join(runtimeDir, "vm")) ? readdirSync(join(runtimeDir, "vm"), { recursive: true }) : []).map(
    String
  )
]

let nextMachine = 1

/** A machine with an empty volume that lies beside the sockets. */
export const machineSpec = (
  runtimeDir: string,
  appId: string,
  slot: number
): Effect.Effect<MachineSpec & { readonly link: UserLink }, unknown> =>
  Effect.gen(function* () {
    const image = yield* GuestImage
    const path = join(runtimeDir, `${appId}.ext4`)
    yield* Effect.promise(() => writeFile(path, "").then(() => truncate(path, 32 * 1024 * 1024)))
    const addresses = slotAddresses(slot)
    return {
      machineId: (process.pid * 65536 + nextMachine++).toString(16).padStart(16, "0"),
      appId: appId as AppId,
      slot,
      vcpuCount: 1,
      memoryMib: 128,
      image: {
        version: image.version,
        kernel: image.kernel,
        initramfs: image.initramfs,
        base: image.base
      },
      layers: [],
      volume: { kind: "file" as const, path },
      link: {
        kind: "user" as const,
        mac: addresses.mac,
        guestAddress: addresses.guest,
        hostAddress: addresses.host,
        prefixLength: 30,
        ports: []
      }
    }
  }).pipe(Effect.provide(guestImage))

/** Waits until the guest has said hello. */
export const hello = (machine: Machine) =>
  Guest.use((guest) => guest.connect(machine, PATIENCE_MS)).pipe(
    Effect.scoped,
    Effect.provide(layerVirtioSerialGuest)
  )
