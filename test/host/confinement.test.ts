/** What a guest that has broken out of its QEMU would find. */
import { execFileSync } from "node:child_process"
import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { basename, dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Option, type Scope } from "effect"
import { groupsName, hierarchiesHere, openGroups } from "../../layers/hypervisor/qemu/confinement/cgroup.ts"
import { unifiedParent } from "../../layers/hypervisor/qemu/confinement/cgroup-place.ts"
import { runDirectory } from "../../layers/hypervisor/qemu/run-directory.ts"
import { DEFAULT_ID_RANGE, readIdRange, vmmIdentity } from "../../src/hypervisor/identity.ts"
import { type BootFailed, Hypervisor, type Machine, type MachineSpec } from "../../src/services/Hypervisor.ts"
import { volumeFile } from "../support/volume-file.ts"
import { hello, machineSpec, qemu, runtimeDirectory, tracesOf } from "./qemu.ts"

const test = (
  sentence: string,
  body: (directory: string) => Effect.Effect<void, unknown, Hypervisor | Scope.Scope>
) =>
  it.live(sentence, () =>
    Effect.flatMap(runtimeDirectory, (directory) => body(directory).pipe(Effect.provide(qemu(directory))))
  )

const boot = (spec: MachineSpec) => Hypervisor.use((hypervisor) => hypervisor.boot(spec))
const kill = (machine: Machine) => Hypervisor.use((hypervisor) => hypervisor.kill(machine.record))

const pidOf = (machine: Machine): number => machine.record.process?.pid ?? 0

/** The id of a slot's user on this machine. */
const userOf = (slot: number): number => {
  const range = existsSync("/etc/subuid")
    ? readIdRange(readFileSync("/etc/subuid", "utf8"))
    : DEFAULT_ID_RANGE
  if (typeof range === "string") throw new Error(range)
  return vmmIdentity(range.base, slot).uid
}

/** A line of `/proc/<pid>/status`. */
const status = (machine: Machine, name: string): string =>
  readFileSync(`/proc/${pidOf(machine)}/status`, "utf8")
    .match(new RegExp(`^${name}:[ \\t]*(.*)$`, "mu"))?.[1]
    ?.trim() ?? "absent"

/** Where the VMM finds a path of the host. */
const seen = (machine: Machine, path: string) => `/proc/${pidOf(machine)}/root${path}`

/** Every file that the VMM sees. */
const filesSeen = (machine: Machine): ReadonlyArray<string> => {
  const root = seen(machine, "")
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length))
}

/** The directories that hold the cgroups of a host's VMMs. */
const groupsLeft = (directory: string): ReadonlyArray<string> =>
  hierarchiesHere()
    .map((hierarchy) =>
      join(hierarchy.version === 1 ? hierarchy.own : unifiedParent(hierarchy), groupsName(directory))
    )
    .filter((path) => existsSync(path))

/** The directories of the cgroups that the VMM is in and the test is not. */
const groupsOf = (machine: Machine): ReadonlyArray<string> => {
  const mine = new Set(readFileSync("/proc/self/cgroup", "utf8").split("\n"))
  const its = readFileSync(`/proc/${pidOf(machine)}/cgroup`, "utf8").split("\n")
  const paths = its.filter((line) => !mine.has(line)).map((line) => line.split(":").slice(2).join(":"))
  return hierarchiesHere().flatMap(({ top }) =>
    paths.map((path) => join(top, path)).filter((directory) => existsSync(join(directory, "cgroup.procs")))
  )
}

const limitsHere = Exit.isSuccess(
  Effect.runSyncExit(
    Effect.map(openGroups("/run/nibrunner-test-of-groups", hierarchiesHere()), (groups) => groups.close())
  )
)

const firstOf = (directories: ReadonlyArray<string>, names: ReadonlyArray<string>): string => {
  const path = directories
    .flatMap((directory) => names.map((name) => join(directory, name)))
    .find((candidate) => existsSync(candidate))
  return path === undefined ? `none of ${names.join(", ")}` : readFileSync(path, "utf8").trim()
}

describe("a confined VMM", () => {
  test("is a user of its own, in no other group, without a capability, and can gain none", (directory) =>
    Effect.gen(function* () {
      const machine = yield* boot(yield* machineSpec(directory, "web", 3))
      const id = userOf(3)
      assert.strictEqual(status(machine, "Uid"), [id, id, id, id].join("\t"))
      assert.strictEqual(status(machine, "Gid"), [id, id, id, id].join("\t"))
      assert.strictEqual(status(machine, "Groups"), "")
      for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
        assert.strictEqual(status(machine, set), "0000000000000000", set)
      }
      assert.strictEqual(status(machine, "NoNewPrivs"), "1")
      assert.strictEqual(status(machine, "Seccomp"), "2")
      for (const space of ["mnt", "ipc", "uts"]) {
        const link = `/proc/${pidOf(machine)}/ns/${space}`
        assert.notStrictEqual(readlinkSync(link), readlinkSync(`/proc/self/ns/${space}`), space)
      }
      yield* hello(machine)
    }))

  test("sees its own files, and of the host's no other", (directory) =>
    Effect.gen(function* () {
      const spec = yield* machineSpec(directory, "web", 3)
      const other = yield* machineSpec(directory, "shop", 4)
      const state = join(directory, "state.db")
      writeFileSync(state, "of all apps")
      const machine = yield* boot(spec)
      const neighbour = yield* boot(other)
      yield* hello(machine)

      for (const path of [volumeFile(spec.volume), spec.image.base, spec.image.kernel]) {
        assert.isTrue(existsSync(seen(machine, path)), path)
      }
      const hidden = [
        state,
        volumeFile(other.volume),
        runDirectory(directory, 4).path,
        "/etc/shadow",
        "/etc/passwd",
        "/proc/self",
        "/sys/kernel",
        "/bin/sh",
        import.meta.filename,
        "/dev/net/tun",
        "/dev/mem"
      ].filter((path) => existsSync(path))
      assert.includeMembers(hidden, [state, "/etc/shadow", "/proc/self", "/bin/sh"])
      for (const path of hidden) assert.isFalse(existsSync(seen(machine, path)), path)
      assert.isTrue(existsSync(seen(neighbour, volumeFile(other.volume))))

      const own = [volumeFile(spec.volume), spec.image.base, spec.image.kernel, spec.image.initramfs]
      const strangers = filesSeen(machine).filter(
        (path) =>
          !own.includes(path) &&
          !path.startsWith(`${runDirectory(directory, 3).path}/`) &&
          !["/dev/null", "/dev/urandom", "/dev/kvm", "/etc/ld.so.cache"].includes(path) &&
          !/\.so(\.[\d.]+)?$/u.test(path) &&
          !/\/share\/(?:qemu|seabios)\//u.test(path) &&
          !basename(path).startsWith("qemu-system-")
      )
      assert.deepStrictEqual(strangers, [])
    }))

  test("can write to its volume alone, and its volume is no other user's", (directory) =>
    Effect.gen(function* () {
      const spec = yield* machineSpec(directory, "web", 3)
      const machine = yield* boot(spec)
      const mounts = readFileSync(`/proc/${pidOf(machine)}/mountinfo`, "utf8")
        .trim()
        .split("\n")
      const writable = mounts
        .map((line) => line.split(" "))
        .filter(([, , , , , options]) => !options?.split(",").includes("ro"))
        .map(([, , , , point]) => point)
      assert.deepStrictEqual(writable, [volumeFile(spec.volume)])
      for (const line of mounts) assert.match(line.split(" ")[5] ?? "", /nosuid/u)
      const { uid, gid, mode } = statSync(volumeFile(spec.volume))
      assert.deepStrictEqual([uid, gid, mode & 0o777], [userOf(3), userOf(3), 0o600])
    }))

  test("cannot make itself known where the daemon looks for it", (directory) =>
    Effect.gen(function* () {
      const machine = yield* boot(yield* machineSpec(directory, "web", 3))
      const { path, qmp, guest, console, spec } = runDirectory(directory, 3)
      for (const file of [path, qmp, guest, console, spec]) assert.strictEqual(statSync(file).uid, 0, file)
      for (const file of [qmp, guest, console, spec]) {
        assert.strictEqual(statSync(file).mode & 0o077, 0, file)
      }
      assert.strictEqual(statSync(seen(machine, path)).uid, 0)
    }))

  it.live.skipIf(!limitsHere)(
    "has no more memory and processors than its guest, and what it needs itself",
    () =>
      Effect.gen(function* () {
        const directory = yield* runtimeDirectory
        yield* Effect.gen(function* () {
          const spec = { ...(yield* machineSpec(directory, "web", 3)), vcpuCount: 2 }
          const machine = yield* boot(spec)
          yield* hello(machine)
          const groups = groupsOf(machine)
          const memory = Number(firstOf(groups, ["memory.limit_in_bytes", "memory.max"])) / 2 ** 20
          assert.isAtLeast(memory, spec.memoryMib + 64)
          assert.isAtMost(memory, spec.memoryMib + 384)
          assert.match(firstOf(groups, ["cpu.cfs_quota_us", "cpu.max"]), /^200000(?: 100000)?$/u)
          assert.strictEqual(firstOf(groups, ["cpu.cfs_period_us", "cpu.max"]).split(" ").at(-1), "100000")
          yield* kill(machine)
          assert.isNotEmpty(groups)
          assert.isNotEmpty(groupsLeft(directory))
          for (const group of groups) assert.isFalse(existsSync(group), group)
        }).pipe(Effect.provide(Layer.fresh(qemu(directory))), Effect.scoped)
        assert.deepStrictEqual(groupsLeft(directory), [])
      })
  )

  test("leaves its volume and its slot to the next, which finds nothing of it", (directory) =>
    Effect.gen(function* () {
      const first = yield* machineSpec(directory, "web", 3)
      const second = yield* machineSpec(directory, "shop", 3)
      const machine = yield* boot(first)
      yield* kill(machine)
      assert.strictEqual(statSync(volumeFile(first.volume)).uid, 0)
      const next = yield* boot(second)
      assert.isFalse(existsSync(seen(next, volumeFile(first.volume))))
      assert.strictEqual(statSync(volumeFile(second.volume)).uid, userOf(3))
      yield* kill(next)
      assert.deepStrictEqual(
        tracesOf(directory).filter((name) => !name.includes(".ext4")),
        []
      )
    }))

  test("is taken back whatever it was left in: a volume that a dead host's VMM had boots in another slot", (directory) =>
    Effect.gen(function* () {
      const spec = yield* machineSpec(directory, "web", 3)
      chownSync(volumeFile(spec.volume), userOf(9), userOf(9))
      const machine = yield* boot(spec)
      yield* hello(machine)
      assert.strictEqual(statSync(volumeFile(spec.volume)).uid, userOf(3))
    }))

  test("is as confined when it has slept, with the memory of its snapshot alone besides", (directory) =>
    Effect.gen(function* () {
      const hypervisor = yield* Hypervisor
      const spec = yield* machineSpec(directory, "web", 3)
      const machine = yield* boot(spec)
      yield* hello(machine)
      const place = { directory: join(directory, "snapshots", "web"), deploymentId: "dep-1" }
      mkdirSync(dirname(place.directory), { recursive: true })
      yield* hypervisor.sleep(machine, place)
      assert.strictEqual(statSync(volumeFile(spec.volume)).uid, 0)
      const again = { ...spec, machineId: `${spec.machineId.slice(0, 15)}f` }
      const woken = yield* Effect.scoped(hypervisor.wake(again, place))
      assert.strictEqual(status(woken, "Uid").split("\t")[0], String(userOf(3)))
      assert.strictEqual(status(woken, "CapBnd"), "0000000000000000")
      const adopted = Option.getOrThrow(yield* hypervisor.adopt(woken.record))
      yield* hello(adopted)
      const snapshots = filesSeen(adopted).filter((path) => path.includes("/snapshots/"))
      assert.deepStrictEqual(
        snapshots.map((path) => basename(path)),
        ["memory"]
      )
      yield* kill(adopted)
      assert.deepStrictEqual(tracesOf(directory), [])
      assert.isFalse(existsSync(place.directory))
    }))

  test("is not started where it could not be confined, and why is said", (directory) =>
    Effect.gen(function* () {
      const spec = yield* machineSpec(directory, "web", 3)
      const refused = (broken: MachineSpec) =>
        Effect.map(Effect.flip(boot(broken)), (error: BootFailed) => error.message)

      const layer = yield* refused({ ...spec, layers: [join(directory, "no-layer")] })
      assert.match(layer, /VMM cannot be confined: .*no-layer does not exist/u)

      mkdirSync(join(directory, "a-directory"))
      const folder = yield* refused({
        ...spec,
        volume: { kind: "file", path: join(directory, "a-directory") }
      })
      assert.match(folder, /VMM cannot be confined: .*a-directory cannot be used: it is no plain file/u)

      rmSync(join(directory, "jail"), { recursive: true })
      assert.match(
        yield* refused(spec),
        /VMM cannot be confined: a new root cannot be mounted on .*jail: No such/u
      )
      assert.deepStrictEqual(tracesOf(directory), [])
      assert.strictEqual(statSync(volumeFile(spec.volume)).uid, 0)

      mkdirSync(join(directory, "jail"))
      yield* kill(yield* boot(spec))
    }))

  test("leaves no mount behind that the host sees", (directory) =>
    Effect.gen(function* () {
      const before = readFileSync("/proc/self/mountinfo", "utf8")
      const machine = yield* boot(yield* machineSpec(directory, "web", 3))
      assert.strictEqual(readFileSync("/proc/self/mountinfo", "utf8"), before)
      assert.deepStrictEqual(readdirSync(join(directory, "jail")), [])
      yield* kill(machine)
      assert.strictEqual(readFileSync("/proc/self/mountinfo", "utf8"), before)
    }))
})

describe("the program that starts VMMs", () => {
  it("starts nothing as root, nor with what it does not know", () => {
    const jail = join(import.meta.dirname, "../../.nibrunner/guest/jail")
    const refusal = (...args: ReadonlyArray<string>) => {
      try {
        execFileSync(jail, args, { stdio: "pipe" })
        return "it was started"
      } catch (error) {
        const { status, stderr } = error as { readonly status: number; readonly stderr: Buffer }
        return `${status} ${String(stderr).trim()}`
      }
    }
    assert.match(refusal("--root", "/tmp", "--user", "0", "--", "/bin/true"), /^125 jail: 0 is no user/u)
    assert.match(refusal("--root", "/tmp", "--", "/bin/true"), /^125 jail: a program, and a user/u)
    assert.match(refusal("--nonsense", "x", "--", "/bin/true"), /^125 jail: --nonsense is no option/u)
    assert.match(refusal("--listen"), /^125 jail: --listen needs a value/u)
    assert.match(refusal("--group", "/no/such/group", "--", "/bin/true"), /^125 jail: the cgroup \/no\/such/u)
    assert.strictEqual(refusal("--", "/bin/true"), "it was started")
  })
})
