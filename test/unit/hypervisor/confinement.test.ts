import { assert, describe, it } from "@effect/vitest"
import { readHierarchies, unifiedParent } from "../../../layers/hypervisor/qemu/confinement/cgroup-place.ts"
import { jailArguments, sightOf } from "../../../layers/hypervisor/qemu/confinement/jail.ts"
import { librariesOf } from "../../../layers/hypervisor/qemu/confinement/program.ts"
import { explainDeath } from "../../../layers/hypervisor/qemu/explain.ts"
import { runDirectory } from "../../../layers/hypervisor/qemu/run-directory.ts"
import { fakeMachineSpec } from "../../../layers/testing/FakeHost.ts"
import { volumeFile } from "../../support/volume-file.ts"

const TCG = { kind: "tcg", tscKhz: 2_596_128 } as const
const KVM = { kind: "kvm" } as const
const qemu = { path: "/usr/bin/qemu", needs: ["/lib/libc.so.6", "/usr/share/qemu"] }
const spec = { ...fakeMachineSpec("web", 5, "00c0ffee00c0ffee"), layers: ["/layers/one"] }
const directory = runDirectory("/run/nibrunner", 5)

describe("what a VMM sees", () => {
  it("is QEMU, its image and its layers to read, and its volume to write", () => {
    const { readOnly, writable, devices } = sightOf(spec, directory, qemu, TCG, undefined)
    assert.deepStrictEqual(readOnly, [
      "/usr/bin/qemu",
      "/lib/libc.so.6",
      "/usr/share/qemu",
      spec.image.kernel,
      spec.image.initramfs,
      spec.image.base,
      "/layers/one",
      "/run/nibrunner/vm/5"
    ])
    assert.deepStrictEqual(writable, [volumeFile(spec.volume)])
    assert.deepStrictEqual(devices, ["/dev/null", "/dev/urandom"])
  })

  it("is KVM where it is used, and the memory that it wakes from in place of a kernel", () => {
    assert.include(sightOf(spec, directory, qemu, KVM, undefined).devices, "/dev/kvm")
    const { readOnly, writable } = sightOf(spec, directory, qemu, TCG, "/snapshots/web/memory")
    assert.deepStrictEqual(writable, [volumeFile(spec.volume), "/snapshots/web/memory"])
    assert.notInclude(readOnly, spec.image.kernel)
  })

  it("is of a volume that a server keeps the directory of its socket, and no file", () => {
    const volume = { kind: "nbd" as const, socketPath: "/run/relay/web/nbd.sock", exportName: "volumes/web" }
    const { readOnly, writable } = sightOf({ ...spec, volume }, directory, qemu, TCG, undefined)
    assert.include(readOnly, "/run/relay/web")
    assert.deepStrictEqual(writable, [])
  })
})

describe("the start of a VMM", () => {
  const surroundings = {
    root: "/run/nibrunner/jail",
    identity: { uid: 1_879_048_197, gid: 1_879_048_197 },
    sight: { readOnly: ["/a"], writable: ["/b"], devices: ["/dev/null"] },
    groups: ["/sys/fs/cgroup/x/5"]
  }
  const sockets = [directory.qmp, directory.console, directory.guest].flatMap((path) => ["--listen", path])

  it("opens its sockets in the order of their numbers, and then shuts it in", () => {
    assert.deepStrictEqual(jailArguments(directory, spec.link, surroundings, "/usr/bin/qemu", ["-S"]), [
      ...sockets,
      ...["--group", "/sys/fs/cgroup/x/5", "--root", "/run/nibrunner/jail"],
      ...["--ro", "/a", "--rw", "/b", "--device", "/dev/null", "--user", "1879048197"],
      ...["--", "/usr/bin/qemu", "-S"]
    ])
  })

  it("opens a tap as well, and then takes the host's network away", () => {
    const { mac, guestAddress, hostAddress } = spec.link
    const tap = { kind: "tap" as const, ifname: "nbr5", mac, guestAddress, hostAddress, prefixLength: 30 }
    const line = jailArguments(directory, tap, surroundings, "/usr/bin/qemu", [])
    assert.deepStrictEqual(line.slice(0, 8), [...sockets, "--tap", "nbr5"])
    assert.include(line, "--no-network")
  })

  it("without root is that of the sockets alone", () => {
    assert.deepStrictEqual(jailArguments(directory, spec.link, undefined, "/usr/bin/qemu", ["-S"]), [
      ...sockets,
      "--",
      "/usr/bin/qemu",
      "-S"
    ])
  })

  it("that fails is told as what it is", () => {
    assert.strictEqual(
      explainDeath("jail: /layers/one cannot be shown: No such file or directory\n", "ended with code 125"),
      "its VMM cannot be confined: /layers/one cannot be shown: No such file or directory"
    )
  })
})

describe("the libraries of a program", () => {
  it("are what its loader lists, the loader itself among them", () => {
    const listing = [
      "\tlinux-vdso.so.1 (0x00007fff5a1f2000)",
      "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1877207000)",
      "\tlibgone.so.1 => not found",
      "\t/lib64/ld-linux-x86-64.so.2 (0x00007f1877404000)"
    ].join("\n")
    assert.deepStrictEqual(librariesOf(listing), [
      "/lib/x86_64-linux-gnu/libc.so.6",
      "/lib64/ld-linux-x86-64.so.2"
    ])
  })
})

describe("where cgroups are", () => {
  const v1 = [
    "40 35 0:36 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct",
    "42 35 0:38 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    "43 35 0:39 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
    "44 24 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
  ].join("\n")

  it("of version 1 each controller has a hierarchy, and the daemon a place in each", () => {
    const own = "9:pids:/x\n4:memory:/system.slice/nibrunnerd.service\n1:cpu,cpuacct:/\n0::/\n"
    assert.deepStrictEqual(
      readHierarchies(v1, own).filter(({ controllers }) => controllers.length > 0),
      [
        {
          version: 1,
          controllers: ["cpu"],
          own: "/sys/fs/cgroup/cpu,cpuacct",
          top: "/sys/fs/cgroup/cpu,cpuacct"
        },
        {
          version: 1,
          controllers: ["memory"],
          own: "/sys/fs/cgroup/memory/system.slice/nibrunnerd.service",
          top: "/sys/fs/cgroup/memory"
        }
      ]
    )
  })

  it("of version 2 VMMs are beside the service that starts them, for a group with processes limits nothing below", () => {
    const v2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
    const [service] = readHierarchies(v2, "0::/system.slice/nibrunnerd.service\n")
    assert.strictEqual(service && unifiedParent(service), "/sys/fs/cgroup/system.slice")
    const [shell] = readHierarchies(v2, "0::/\n")
    assert.strictEqual(shell && unifiedParent(shell), "/sys/fs/cgroup")
  })

  it("in a container they are below what is mounted, and paths with spaces are read as they are", () => {
    const mounted = "30 24 0:26 /docker/abc /sys/fs/c\\040group rw - cgroup cgroup rw,memory"
    const [inside] = readHierarchies(mounted, "4:memory:/docker/abc/app\n")
    assert.strictEqual(inside?.own, "/sys/fs/c group/app")
    const [outside] = readHierarchies(mounted, "4:memory:/docker/abcdef\n")
    assert.strictEqual(outside?.own, "/sys/fs/c group")
    assert.deepStrictEqual(readHierarchies("nonsense\n\n- -", "nonsense"), [])
  })
})
