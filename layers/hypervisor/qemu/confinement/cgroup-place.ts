/** Where the kernel's cgroups are, from what it shows of them in /proc. */

/** A hierarchy of cgroups that holds controllers, and where in it the daemon is. */
export interface Hierarchy {
  readonly version: 1 | 2
  /** Of `memory` and `cpu` those that it holds. For version 2 that is to be read from it. */
  readonly controllers: ReadonlyArray<string>
  /** The directory of the daemon's own group. */
  readonly own: string
  /** The directory in which the hierarchy begins. */
  readonly top: string
}

/** What limits are set with. */
export const CONTROLLERS = ["memory", "cpu"] as const

interface Mount {
  readonly root: string
  readonly point: string
  readonly type: string
  readonly options: ReadonlyArray<string>
}

/** The kernel writes a space, a tab, a newline and a backslash in paths as `\040` and so on. */
const unescape = (path: string) =>
  path.replace(/\\([0-7]{3})/gu, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))

/** A line of `/proc/self/mountinfo`; see proc(5). */
const readMount = (line: string): Mount | undefined => {
  const [before, after] = line.split(" - ")
  const [, , , root, point] = before?.split(" ") ?? []
  const [type, , options] = after?.split(" ") ?? []
  if (root === undefined || point === undefined || type === undefined) return undefined
  return { root: unescape(root), point: unescape(point), type, options: options?.split(",") ?? [] }
}

/** Where a group is under a mount of its hierarchy. One outside of what is mounted is taken to be at its root. */
const below = ({ root, point }: Mount, path: string): string => {
  const rest =
    root === "/" ? path : path === root || path.startsWith(`${root}/`) ? path.slice(root.length) : ""
  return `${point}${rest === "/" ? "" : rest}`
}

/** The hierarchies that hold the controllers of version 1, and the one of version 2 if it is mounted. */
export const readHierarchies = (mountinfo: string, ownGroups: string): ReadonlyArray<Hierarchy> => {
  const groups = ownGroups
    .trim()
    .split("\n")
    .flatMap((line) => {
      const match = line.match(/^\d+:([^:]*):(\/.*)$/u)
      return match === null ? [] : [{ controllers: (match[1] ?? "").split(","), path: match[2] ?? "/" }]
    })
  return mountinfo.split("\n").flatMap((line): ReadonlyArray<Hierarchy> => {
    const mount = readMount(line)
    if (mount?.type === "cgroup2") {
      const own = groups.find((group) => group.controllers[0] === "")?.path
      return own === undefined
        ? []
        : [{ version: 2, controllers: [], own: below(mount, own), top: mount.point }]
    }
    if (mount?.type !== "cgroup") return []
    const controllers = CONTROLLERS.filter((name) => mount.options.includes(name))
    const own = groups.find((group) => controllers.some((name) => group.controllers.includes(name)))?.path
    return own === undefined ? [] : [{ version: 1, controllers, own: below(mount, own), top: mount.point }]
  })
}

/**
 * The directory of version 2 in which VMMs' groups may be. A group with processes of its own can have none below it that
 * limit memory, and systemd keeps its services so: VMMs of a service are beside it.
 */
export const unifiedParent = ({ own, top }: Hierarchy): string => {
  const parent = /\.(?:service|scope)$/u.test(own) ? own.slice(0, own.lastIndexOf("/")) : own
  return parent.length < top.length ? top : parent
}
