/** One microVM of the example app by the layers alone, for benches: no daemon, no reconciler, no proxy. */
import { chmodSync, copyFileSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect, Schema } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { prepareHello } from "../../scripts/local/hello.ts"
import { guestImage as guestImageFolder, layOut } from "../../scripts/local/host.ts"
import { attempt, Problem, tool } from "../../scripts/local/problem.ts"
import { AppId } from "../../src/document/schema.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import { environment } from "../../src/reconcile/boot-spec.ts"
import { Guest } from "../../src/services/Guest.ts"
import { GuestImageManifest } from "../../src/services/GuestImage.ts"
import { Hypervisor, type Machine, type MachineSpec } from "../../src/services/Hypervisor.ts"

/** What the layers say is a sentence already. */
const problem = (error: { readonly message: string }) => new Problem({ message: error.message })

const HELLO_MS = 60_000
const VOLUME_BYTES = 256 * 2 ** 20
const LEASE_MS = 30_000
const SLOT = 0

let nextId = 1
const machineId = () => (process.pid * 65_536 + nextId++).toString(16).padStart(16, "0")

/** The image's files, which whoever gives the hypervisor has verified. */
const imageFiles = attempt("the guest image cannot be read", () => {
  const manifest = Schema.decodeUnknownSync(Schema.fromJsonString(GuestImageManifest))(
    readFileSync(join(guestImageFolder, "manifest.json"), "utf8")
  )
  const path = (name: string) => join(guestImageFolder, name)
  return {
    version: manifest.version,
    kernel: path(manifest.kernel.name),
    initramfs: path(manifest.initramfs.name),
    base: path(manifest.base.name)
  }
})

/** Boots the example app on the hypervisor that is given, with its files in this folder. */
export const bootOne = (folder: string) =>
  Effect.gen(function* () {
    const host = yield* layOut(folder, { maxApps: 1, proxyPort: 0 })
    const hello = yield* prepareHello(host)
    const [instance] = hello.document("running").instances
    const [layer] = instance?.layers ?? []
    if (!instance || layer?.kind !== "executable") {
      return yield* new Problem({ message: "the example must be an executable" })
    }
    const squashfs = join(folder, "layer.squashfs")
    const volume = join(folder, "volume.ext4")
    yield* attempt("the example cannot be laid out", () => {
      const program = join(folder, "tree", layer.destinationPath)
      mkdirSync(dirname(program), { recursive: true })
      for (const path of [join(folder, "tree"), dirname(program)]) chmodSync(path, 0o755)
      copyFileSync(join(host.artifacts, layer.objectKey), program)
      chmodSync(program, 0o755)
      writeFileSync(volume, "")
      truncateSync(volume, VOLUME_BYTES)
    })
    yield* tool("mksquashfs", [join(folder, "tree"), squashfs, "-quiet", "-no-progress"])
    yield* tool("mke2fs", ["-q", "-F", "-t", "ext4", volume])
    const { mac, guest: guestAddress, host: hostAddress, loopback } = slotAddresses(SLOT)
    const guestPort = instance.config.httpPort
    const spec: MachineSpec = {
      machineId: machineId(),
      appId: AppId.make(instance.appId),
      slot: SLOT,
      vcpuCount: instance.config.resources.vcpuCount,
      memoryMib: instance.config.resources.memoryMib,
      image: yield* imageFiles,
      layers: [squashfs],
      volume: { kind: "file", path: volume },
      link: {
        kind: "user",
        mac,
        guestAddress,
        hostAddress,
        prefixLength: 30,
        ports: [guestPort]
      }
    }
    const place = {
      directory: join(folder, "snapshots", instance.appId),
      deploymentId: instance.deploymentId
    }
    const talk = <A>(
      machine: Machine,
      say: (
        session: Effect.Success<ReturnType<Guest["Service"]["connect"]>>
      ) => Effect.Effect<A, { readonly message: string }>
    ) =>
      Guest.use((guest) => Effect.flatMap(guest.connect(machine, HELLO_MS), say)).pipe(
        Effect.scoped,
        Effect.provide(layerVirtioSerialGuest),
        Effect.mapError(problem)
      )
    const machine = yield* Hypervisor.use((hypervisor) => hypervisor.boot(spec)).pipe(
      Effect.mapError(problem)
    )
    yield* talk(machine, (session) =>
      session.handOver({
        hostname: instance.appId,
        network: { address: guestAddress, prefixLength: 30, gateway: hostAddress },
        nameservers: [],
        layerCount: 1,
        program: instance.config.command.program,
        args: instance.config.command.args,
        workingDirectory: instance.config.command.workingDirectory,
        environment: environment(instance),
        restartPolicy: instance.config.restartPolicy,
        hostTime: Date.now()
      })
    )
    const vmm = yield* attempt("the VMM's command line cannot be read", () =>
      readFileSync(`/proc/${machine.record.process?.pid}/cmdline`, "utf8").split("\0").slice(0, -1)
    )
    return {
      machine,
      booted: vmm,
      snapshot: place.directory,
      guestPort,
      target: {
        who: "the machine",
        host: loopback,
        port: guestPort,
        path: hello.healthPath,
        hostname: hello.hostname
      },
      freeze: (running: Machine) => talk(running, (session) => session.freeze(LEASE_MS)),
      sleep: (running: Machine) =>
        Hypervisor.use((hypervisor) => hypervisor.sleep(running, place)).pipe(Effect.mapError(problem)),
      wake: Hypervisor.use((hypervisor) => hypervisor.wake({ ...spec, machineId: machineId() }, place)).pipe(
        Effect.mapError(problem),
        Effect.tap((woken) => talk(woken, (session) => session.thaw))
      ),
      kill: (running: Machine) =>
        Hypervisor.use((hypervisor) => hypervisor.kill(running.record)).pipe(Effect.mapError(problem))
    }
  })
