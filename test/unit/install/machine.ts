/**
 * A machine that is a directory: its kernel's files, its accounts, and programs on PATH that do what systemd's and kmod's
 * would and write down how they were called.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect } from "effect"
import { TestConsole } from "effect/testing"
import { layerInstaller } from "../../../layers/install/layer.ts"
import { Installer } from "../../../src/services/Installer.ts"
import { type DottedKeys, tomlOf } from "../config/toml-text.ts"
import { CONFIG_FILE, configOf, makeRoot, writeImage } from "./support.ts"

/** Keeps what runs, and since when, as files; a unit that is to fail has a file `NAME.fails`. */
const systemctl = (state: string) => `
printf '%s\\n' "systemctl $*" >> '${state}/calls'
unit=\${2-}
case $1 in
  show)
    for unit; do :; done
    if [ -e '${state}'/"$unit.active" ]; then
      echo ActiveState=active
      echo "ExecMainStartTimestamp=$(date -u -r '${state}'/"$unit.active" '+%a %F %T.%6N UTC')"
    elif [ -e '${state}'/"$unit.failed" ]; then
      echo ActiveState=failed
    else
      echo ActiveState=inactive
    fi ;;
  start|restart)
    rm -f '${state}'/"$unit.active"
    if [ -e '${state}'/"$unit.fails" ]; then
      touch '${state}'/"$unit.failed"
      echo "Job for $unit failed because the control process exited with error code." >&2
      exit 1
    fi
    touch '${state}'/"$unit.active" ;;
  reset-failed) rm -f '${state}'/"$unit.failed" ;;
esac
`

const modprobe = (state: string, root: string) => `
printf '%s\\n' "modprobe $*" >> '${state}/calls'
if [ -e '${state}'/"$1.absent" ]; then
  echo "modprobe: FATAL: Module $1 not found in directory /lib/modules/6" >&2
  exit 1
fi
mkdir -p '${root}'/sys/module/"$1"/parameters
if [ "$1" = tun ]; then mkdir -p '${root}'/dev/net; touch '${root}'/dev/net/tun; fi
if [ "$1" = nf_conntrack ]; then
  mkdir -p '${root}'/proc/sys/net/netfilter
  echo 65536 > '${root}'/proc/sys/net/netfilter/nf_conntrack_max
  echo 524288 > '${root}'/proc/sys/net/netfilter/nf_conntrack_buckets
fi
if [ "$1" = nbd ]; then sed -n 's/.*nbds_max=//p' '${root}'/etc/modprobe.d/nibrunner-nbd.conf > '${root}'/sys/module/nbd/parameters/nbds_max; fi
`

const sysusers = (state: string, root: string) => `
printf '%s\\n' "systemd-sysusers $*" >> '${state}/calls'
echo "zerofs:x:$(id -u):$(id -g)::/:/usr/sbin/nologin" >> '${root}'/etc/passwd
`

const PROGRAMS = [
  "mke2fs",
  "debugfs",
  "mksquashfs",
  "ip",
  "nft",
  "conntrack",
  "setpriv",
  "qemu-img",
  "systemd-notify"
]

/** A machine with this configuration, on which everything is there that a host needs. */
export const makeMachine = Effect.fnUntraced(function* (keys: DottedKeys) {
  const host = yield* makeRoot
  const state = path.join(host.directory, "state")
  const bin = path.join(host.directory, "bin")
  for (const directory of [state, bin]) fs.mkdirSync(directory)
  const script = (name: string, body: string) =>
    fs.writeFileSync(path.join(bin, name), `#!/bin/sh\n${body}\n`, { mode: 0o755 })
  for (const name of PROGRAMS) script(name, "exit 0")
  script("systemctl", systemctl(state))
  script("modprobe", modprobe(state, host.root))
  script("systemd-sysusers", sysusers(state, host.root))
  host.write("/opt/qemu", "#!/bin/sh\n", 0o755)
  host.write("/opt/zerofs", "#!/bin/sh\necho zerofs 1.2.3\n", 0o755)
  host.write("/opt/nibrunner/bin/nibrunnerd", "#!/bin/sh\n", 0o755)
  host.write("/dev/kvm", "")
  host.write("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
  host.write("/proc/sys/net/ipv4/ip_forward", "0\n")
  writeImage(host.at("/var/lib/nibrunner/guest"))
  host.write(CONFIG_FILE, tomlOf(keys))
  let config = configOf(keys)

  const before = process.env.PATH
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      process.env.PATH = `${bin}:${before ?? ""}`
    }),
    () =>
      Effect.sync(() => {
        process.env.PATH = before
      })
  )
  const installer = layerInstaller({
    launcher: "/opt/nibrunner/bin/nibrunnerd",
    version: "0",
    files: ["/opt/nibrunner/bin/nibrunnerd"],
    machineRoot: host.root
  })

  const told = <A, E>(work: Effect.Effect<A, E, Installer>) =>
    Effect.gen(function* () {
      const problem = yield* work.pipe(
        Effect.as(undefined),
        Effect.catch((error: E) => Effect.succeed(error)),
        Effect.provide(installer),
        Effect.provide(NodeServices.layer)
      )
      return { out: (yield* TestConsole.logLines).map(String), problem }
    }).pipe(Effect.provide(TestConsole.layer))

  return {
    ...host,
    install: (force = false) =>
      told(
        Installer.use((service) =>
          service.install({ configFile: CONFIG_FILE, config, root: undefined, force, from: undefined })
        )
      ),
    start: () =>
      told(Installer.use((service) => service.start({ configFile: CONFIG_FILE, config, force: false }))),
    /** Another configuration, written as an operator does. */
    configure: (changed: DottedKeys) => {
      host.write(CONFIG_FILE, tomlOf(changed))
      config = configOf(changed)
    },
    /** How the programs were called since the last look. */
    calls: (): ReadonlyArray<string> => {
      const file = path.join(state, "calls")
      if (!fs.existsSync(file)) return []
      const lines = fs.readFileSync(file, "utf8").trim().split("\n")
      fs.rmSync(file)
      return lines
    },
    /** Whatever `NAME` of the machine's state says, as in `nibrunnerd.service.fails`. */
    mark: (name: string) => fs.writeFileSync(path.join(state, name), ""),
    unmark: (name: string) => fs.rmSync(path.join(state, name)),
    removeProgram: (name: string) => fs.rmSync(path.join(bin, name))
  }
})
