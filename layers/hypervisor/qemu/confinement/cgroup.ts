/** A cgroup of each VMM's own, versions 1 and 2, that limits its memory and its time on the processors. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { crc32 } from "node:zlib"
import { Effect } from "effect"
import { fileProblem } from "../../../files/problem.ts"
import { CONTROLLERS, type Hierarchy, readHierarchies, unifiedParent } from "./cgroup-place.ts"

/** Why a group cannot be had: a clause. */
export interface NoGroup {
  readonly reason: string
}

/** The groups of this host's VMMs, by slot. */
export interface Groups {
  /** Makes the slot's group, with a limit of memory; gives the directories that its processes are to join. */
  readonly make: (slot: number, memoryBytes: number) => Effect.Effect<ReadonlyArray<string>, NoGroup>
  /** Limits the group's time to that of so many processors; undefined: not at all. */
  readonly limitTime: (slot: number, cpus: number | undefined) => Effect.Effect<void, NoGroup>
  /** Removes it, once its processes have ended. No error when there is none. */
  readonly remove: (slot: number) => Effect.Effect<void, NoGroup>
  /** The slots that have one. */
  readonly list: () => ReadonlyArray<number>
  /** Removes groups without a process, and what holds them when no other is left. */
  readonly close: () => void
}

/** Names what holds the groups of one host: others on the same machine have other runtime directories. */
export const groupsName = (runtimeDir: string): string =>
  `nibrunner-${crc32(runtimeDir).toString(16).padStart(8, "0")}`

const PERIOD_US = 100_000

/** Writes into a file of a group that not every kernel has. */
const writeIfThere = (path: string, text: string) => {
  if (existsSync(path)) writeFileSync(path, text)
}

const setMemory = (version: 1 | 2, group: string, bytes: number) =>
  writeFileSync(join(group, version === 1 ? "memory.limit_in_bytes" : "memory.max"), String(bytes))

/** What was not used of one period may be used in the next: a guest that was quiet and has work for a moment is not stopped in it. */
const setTime = (version: 1 | 2, group: string, cpus: number | undefined) => {
  const quota = cpus === undefined ? undefined : cpus * PERIOD_US
  const burst = join(group, version === 1 ? "cpu.cfs_burst_us" : "cpu.max.burst")
  // a burst above the quota is refused: it goes before a quota that is taken away, and comes after one that is set
  if (quota === undefined) writeIfThere(burst, "0")
  if (version === 1) {
    writeFileSync(join(group, "cpu.cfs_period_us"), String(PERIOD_US))
    writeFileSync(join(group, "cpu.cfs_quota_us"), String(quota ?? -1))
  } else writeFileSync(join(group, "cpu.max"), `${quota ?? "max"} ${PERIOD_US}`)
  if (quota !== undefined) writeIfThere(burst, String(quota))
}

/** A directory of the host's, and the controllers that limit what is below it. */
interface Tree {
  readonly version: 1 | 2
  readonly directory: string
  readonly controllers: ReadonlyArray<string>
}

const attempt = <A>(path: string, run: () => A): Effect.Effect<A, NoGroup> =>
  Effect.try({ try: run, catch: (error) => ({ reason: fileProblem(path, error).message }) })

const words = (path: string): ReadonlyArray<string> => readFileSync(path, "utf8").trim().split(/\s+/u)

/** Has the controllers of version 2 limit what is below a directory; those that cannot be are left out. */
const enable = (directory: string) => {
  for (const name of CONTROLLERS) {
    try {
      writeFileSync(join(directory, "cgroup.subtree_control"), `+${name}`)
    } catch {
      // what comes of it is read below
    }
  }
}

const unifiedTree = (hierarchy: Hierarchy, name: string): Tree => {
  const parent = unifiedParent(hierarchy)
  const steps = parent.slice(hierarchy.top.length).split("/").filter(Boolean)
  for (let depth = 0; depth <= steps.length; depth++) {
    enable(join(hierarchy.top, ...steps.slice(0, depth)))
  }
  const directory = join(parent, name)
  mkdirSync(directory, { recursive: true })
  enable(directory)
  const controllers = words(join(directory, "cgroup.subtree_control"))
  return { version: 2, directory, controllers: CONTROLLERS.filter((wanted) => controllers.includes(wanted)) }
}

const treeOf = (hierarchy: Hierarchy, name: string): Tree => {
  if (hierarchy.version === 2) return unifiedTree(hierarchy, name)
  const directory = join(hierarchy.own, name)
  mkdirSync(directory, { recursive: true })
  return { version: 1, directory, controllers: hierarchy.controllers }
}

const removeDirectory = (directory: string) => {
  if (existsSync(directory)) rmdirSync(directory)
}

/** Removes a group that holds nothing; one of VMMs that run on stays. */
const removeEmpty = (directory: string) => {
  try {
    removeDirectory(directory)
  } catch {
    // it is in use
  }
}

const slotsIn = (directory: string): ReadonlyArray<number> =>
  existsSync(directory)
    ? readdirSync(directory)
        .filter((entry) => /^\d+$/u.test(entry))
        .map(Number)
    : []

const REMOVE_LIMIT_MS = 1_000
const REMOVE_EVERY_MS = 10

/**
 * The groups of the host with this `runtime_dir`, in the hierarchies that the kernel shows. Fails where one of memory and time
 * can be limited by none of them, and leaves nothing.
 */
export const openGroups = (
  runtimeDir: string,
  hierarchies: ReadonlyArray<Hierarchy>
): Effect.Effect<Groups, NoGroup> =>
  Effect.gen(function* () {
    const name = groupsName(runtimeDir)
    const trees: Array<Tree> = []
    const close = () => {
      for (const { directory } of trees) {
        for (const slot of slotsIn(directory)) removeEmpty(join(directory, String(slot)))
        removeEmpty(directory)
      }
    }
    const missing = () =>
      CONTROLLERS.filter((wanted) => !trees.some((tree) => tree.controllers.includes(wanted)))

    const open = Effect.gen(function* () {
      // of a controller that version 1 holds, version 2 has nothing
      for (const hierarchy of [...hierarchies].sort((a, b) => a.version - b.version)) {
        if (missing().length === 0) break
        const tree = yield* attempt(hierarchy.own, () => treeOf(hierarchy, name))
        trees.push(tree)
        if (tree.controllers.length === 0) close()
      }
      const lacking = missing()
      if (lacking.length > 0) {
        return yield* Effect.fail<NoGroup>({
          reason: `no cgroup of this machine that the daemon may use limits ${lacking.join(" and ")}`
        })
      }
    })
    yield* open.pipe(Effect.onError(() => Effect.sync(close)))

    const directories = (slot: number) =>
      trees.map((tree) => ({ ...tree, group: join(tree.directory, String(slot)) }))

    const make: Groups["make"] = (slot, memoryBytes) =>
      Effect.forEach(directories(slot), ({ version, controllers, group }) =>
        attempt(group, () => {
          mkdirSync(group, { recursive: true })
          if (controllers.includes("memory")) setMemory(version, group, memoryBytes)
          if (controllers.includes("cpu")) setTime(version, group, undefined)
          return group
        })
      )

    const limitTime: Groups["limitTime"] = (slot, cpus) =>
      Effect.forEach(
        directories(slot).filter(({ controllers }) => controllers.includes("cpu")),
        ({ version, group }) => attempt(group, () => setTime(version, group, cpus)),
        { discard: true }
      )

    /** What a process holds of its group is let go of a little after its end. */
    const remove: Groups["remove"] = (slot) =>
      Effect.forEach(
        directories(slot),
        ({ group }) =>
          Effect.gen(function* () {
            for (let waited = 0; ; waited += REMOVE_EVERY_MS) {
              const removed = yield* Effect.exit(attempt(group, () => removeDirectory(group)))
              if (removed._tag === "Success") return
              if (waited >= REMOVE_LIMIT_MS) return yield* removed
              yield* Effect.sleep(REMOVE_EVERY_MS)
            }
          }),
        { discard: true }
      )

    const list = () => [...new Set(trees.flatMap(({ directory }) => slotsIn(directory)))]
    return { make, limitTime, remove, list, close }
  })

/** The hierarchies of this machine. */
export const hierarchiesHere = (): ReadonlyArray<Hierarchy> =>
  readHierarchies(readFileSync("/proc/self/mountinfo", "utf8"), readFileSync("/proc/self/cgroup", "utf8"))
