import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import {
  commandLine,
  kernelCommandLine,
  readCommandLine
} from "../../../layers/hypervisor/qemu/command-line.ts"
import { runDirectory } from "../../../layers/hypervisor/qemu/run-directory.ts"
import { fakeMachineSpec } from "../../../layers/testing/FakeHost.ts"
import type { MachineSpec } from "../../../src/services/Hypervisor.ts"

const RUNTIME_DIR = "/run/nibrunner"
const TCG = { kind: "tcg", tscKhz: 2_596_128 } as const
const KVM = { kind: "kvm" } as const

const spec = (changes: Partial<MachineSpec> = {}): MachineSpec => ({
  ...fakeMachineSpec("web", 5, "00c0ffee00c0ffee"),
  ...changes
})

const line = (machine: MachineSpec, accelerator: Parameters<typeof commandLine>[2] = TCG) =>
  commandLine(machine, runDirectory(RUNTIME_DIR, machine.slot), accelerator)

/** The values of every occurrence of an option. */
const valuesOf = (argv: ReadonlyArray<string>, option: string) =>
  argv.flatMap((argument, index) => (argument === option ? [argv[index + 1] ?? ""] : []))

const blockdevs = (argv: ReadonlyArray<string>) =>
  valuesOf(argv, "-blockdev").map((json) => JSON.parse(json) as Record<string, unknown>)

describe("QEMU's command line", () => {
  it("tells a guest without KVM the frequency of its TSC, and one with KVM nothing", () => {
    assert.include(kernelCommandLine(TCG).split(" "), "tsc_early_khz=2596128")
    assert.notInclude(kernelCommandLine(KVM), "tsc")
  })

  it("ends at a panic instead of starting the guest again", () => {
    assert.include(kernelCommandLine(KVM).split(" "), "panic=-1")
    assert.include(line(spec()), "-no-reboot")
  })

  it("starts paused, without devices and settings that nobody asked for, in the sandbox", () => {
    const argv = line(spec())
    for (const option of ["-S", "-nodefaults", "-no-user-config"]) assert.include(argv, option)
    assert.deepStrictEqual(valuesOf(argv, "-sandbox"), [
      "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    ])
  })

  it("attaches the base, the layers bottom first and the volume, in this order", () => {
    const argv = line(spec({ layers: ["/layers/one", "/layers/two"] }))
    const files = blockdevs(argv).map((drive) => (drive.file as { filename: string }).filename)
    assert.deepStrictEqual(files, ["/fake/base", "/layers/one", "/layers/two", "/fake/volumes/web"])
    assert.deepStrictEqual(
      valuesOf(argv, "-device").filter((device) => device.startsWith("virtio-blk-device")),
      ["base", "layer0", "layer1", "volume"].map((name) => `virtio-blk-device,drive=${name},serial=${name}`)
    )
  })

  it("opens images read-only, and the volume so that what the guest syncs is on the disk", () => {
    const drives = blockdevs(line(spec({ layers: ["/layers/one"] })))
    const volume = drives.at(-1)
    for (const image of drives.slice(0, -1)) {
      assert.strictEqual(image["read-only"], true)
      assert.deepInclude(image.file, { "read-only": true, locking: "on" })
    }
    assert.deepInclude(volume, { discard: "unmap", cache: { direct: false, "no-flush": false } })
    assert.notProperty(volume, "read-only")
    assert.deepInclude(volume?.file, { locking: "on", cache: { direct: false, "no-flush": false } })
  })

  it("forwards each port of the link from the slot's loopback addresses, from none below 1024, and lets the guest out to nothing", () => {
    const link = { ...spec().link, ports: [3000, 80] }
    assert.deepStrictEqual(valuesOf(line(spec({ link })), "-netdev"), [
      "user,id=net,restrict=on,ipv6=off,net=10.201.0.21/30,host=10.201.0.21,dhcpstart=10.201.0.22,dns=10.201.0.23," +
        "hostfwd=tcp:127.201.0.22:3000-10.201.0.22:3000,hostfwd=tcp:127.201.0.21:64592-10.201.0.22:80"
    ])
  })

  it("takes a tap that is open already, by its number", () => {
    const { mac, guestAddress, hostAddress } = spec().link
    const link = { kind: "tap" as const, ifname: "nbr5", mac, guestAddress, hostAddress, prefixLength: 30 }
    const argv = line(spec({ link }))
    assert.deepStrictEqual(valuesOf(argv, "-netdev"), ["tap,id=net,fd=6,vhost=off"])
    assert.include(valuesOf(argv, "-device"), `virtio-net-device,netdev=net,mac=${mac}`)
  })

  it("takes its sockets open as well: it has no need to make one", () => {
    assert.deepStrictEqual(
      valuesOf(line(spec()), "-chardev"),
      ["qmp,fd=3", "console,fd=4", "guest,fd=5"].map((socket) => `socket,id=${socket},server=on,wait=off`)
    )
  })

  it("keeps a comma in a path from ending the option", () => {
    const argv = commandLine(spec(), runDirectory("/run/a,process=b", 5), TCG)
    assert.deepStrictEqual(valuesOf(argv, "-name"), ["nibrunner-00c0ffee00c0ffee@/run/a,,process=b/vm/5"])
  })

  it("says which machine it is, to those of the same runtime directory", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 16383 }),
        fc.stringMatching(/^[0-9a-f]{16}$/u),
        fc.constantFrom("/run/nibrunner", "/run/a,b", "/tmp/x y", "/run/ü/"),
        (slot, machineId, runtimeDir) => {
          const machine = { ...fakeMachineSpec("web", slot, machineId), layers: ["-name", "nibrunner-x"] }
          const argv = ["qemu", ...commandLine(machine, runDirectory(runtimeDir, slot), TCG), ""]
          assert.deepStrictEqual(readCommandLine(argv, runtimeDir), { machineId, slot })
          assert.isUndefined(readCommandLine(argv, "/run/other"))
          assert.isUndefined(readCommandLine(argv, `${runtimeDir}x`))
        }
      )
    )
  })

  it("takes no other process for a microVM", () => {
    for (const argv of [
      [],
      [""],
      ["-name"],
      ["qemu", "-name", "nibrunner-00c0ffee00c0ffee"],
      ["qemu", "-name", "nibrunner-00c0ffee00c0ffee@"],
      ["qemu", "-name", "nibrunner-xyz@/run/nibrunner/vm/1"],
      ["qemu", "-name", "other-00c0ffee00c0ffee@/run/nibrunner/vm/1"],
      ["qemu", "-name", "nibrunner-00c0ffee00c0ffee@/run/nibrunner/vm/x"],
      ["qemu", "-name", "nibrunner-00c0ffee00c0ffee@/run/nibrunner/vm/1/2"],
      ["qemu", "-name", "nibrunner-00c0ffee00c0ffee/run/nibrunner/vm/1"]
    ]) {
      assert.isUndefined(readCommandLine(argv, RUNTIME_DIR))
    }
    fc.assert(
      fc.property(fc.array(fc.string()), (argv) => {
        assert.isUndefined(readCommandLine(argv, RUNTIME_DIR))
      })
    )
  })
})
