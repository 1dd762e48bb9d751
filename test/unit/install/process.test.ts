/**
 * The real commands on a machine of their own: a root directory in namespaces of mounts and network, with this machine's
 * programs to read and a systemctl that writes down how it is called. Nothing of this machine can be reached to be changed.
 */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { tomlOf } from "../config/toml-text.ts"
import { CONFIG_FILE, checkout, local, makeRoot, type Root, writeImage } from "./support.ts"

const isRoot = process.getuid?.() === 0

/** Shown to the machine, and not to be written to. */
const SHOWN = ["/usr", "/bin", "/sbin", "/lib", "/lib64", checkout]

const SYSTEMCTL = `#!/bin/sh
echo "$*" >> /calls
unit=\${2-}
case $1 in
  show)
    for unit; do :; done
    [ -e "/active.$unit" ] || { echo ActiveState=inactive; exit; }
    echo ActiveState=active
    echo "ExecMainStartTimestamp=$(date -u -r "/active.$unit" '+%a %F %T.%6N UTC')" ;;
  start|restart) touch "/active.$unit" ;;
esac
`

const machine = Effect.map(makeRoot, (host) => {
  host.write("/fake/systemctl", SYSTEMCTL, 0o755)
  host.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
  host.write("/opt/qemu", "#!/bin/sh\n", 0o755)
  writeImage(host.at("/var/lib/nibrunner/guest"))
  for (const directory of ["/proc", "/dev", "/tmp", "/run", ...SHOWN])
    fs.mkdirSync(host.at(directory), { recursive: true })
  return host
})

/** Runs the program in that machine. */
const nibrunnerd = (host: Root, ...args: ReadonlyArray<string>) => {
  const mounts = SHOWN.map(
    (directory) =>
      `mount --rbind '${directory}' '${host.at(directory)}' && mount -o remount,bind,ro '${host.at(directory)}'`
  )
  const script = [
    // a network without a single address takes any for its own
    "ip link set lo up",
    "mount --make-rprivate /",
    ...mounts,
    `mount --rbind /dev '${host.at("/dev")}'`,
    `mount -t proc -o ro proc '${host.at("/proc")}'`,
    // what follows the script's name is the command
    `exec chroot '${host.root}' "$@"`
  ].join(" && ")
  const { status, stderr, stdout } = spawnSync(
    "unshare",
    [
      ...["-m", "-n", "sh", "-c", script, "sh"],
      ...[process.execPath, path.join(checkout, "bin/nibrunnerd.ts"), ...args]
    ],
    {
      encoding: "utf8",
      env: {
        PATH: `/fake:${process.env.PATH}`,
        NIBRUNNER_CONFIG: CONFIG_FILE,
        NODE_DISABLE_COMPILE_CACHE: "1"
      }
    }
  )
  return { status, out: stdout, err: stderr }
}

describe.skipIf(!isRoot)("the commands on a machine of their own", () => {
  it.live("lay it out, start what does not run, and then have nothing to do", () =>
    Effect.gen(function* () {
      const host = yield* machine
      host.write(CONFIG_FILE, tomlOf({ ...local, "proxy.http.listen_address": '"127.0.0.1"' }))
      const first = nibrunnerd(host, "start")
      assert.strictEqual(first.status, 0, first.err)
      assert.include(first.out, "wrote /etc/systemd/system/nibrunnerd.service\n")
      assert.include(first.out, "nibrunnerd.service: started\n")
      assert.include(
        host.read("/etc/systemd/system/nibrunnerd.service"),
        `ExecStart=${path.join(checkout, "bin/nibrunnerd")} daemon\n`
      )
      const deeds = () =>
        host
          .read("/calls")
          .split("\n")
          .filter((call) => !call.startsWith("show"))
      const once = ["daemon-reload", "enable nibrunnerd.service", "start nibrunnerd.service", ""]
      assert.deepStrictEqual(deeds(), once)
      const second = nibrunnerd(host, "start")
      assert.strictEqual(second.status, 0, second.err)
      assert.match(second.out, /^Nothing had to be changed\.\n/u)
      assert.deepStrictEqual(deeds(), [
        ...once.slice(0, -1),
        "daemon-reload",
        "enable nibrunnerd.service",
        ""
      ])
    })
  )

  it.live("refuse with one reason a line, and exit code 1", () =>
    Effect.gen(function* () {
      const host = yield* machine
      const noConfig = nibrunnerd(host, "start")
      assert.deepStrictEqual([noConfig.status, noConfig.out], [1, ""])
      assert.match(
        noConfig.err,
        /the configuration \/etc\/nibrunner\/config\.toml cannot be read: there is no such file/u
      )
      host.write(
        CONFIG_FILE,
        tomlOf({ ...local, "artifacts.store_url": '"s3://bucket"', "metrics.listen_address": '"192.0.2.1"' })
      )
      const { err, status } = nibrunnerd(host, "start")
      assert.strictEqual(status, 1)
      assert.deepStrictEqual(err.split("\n"), [
        "nibrunnerd: nothing was started:",
        ...["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(
          (name) =>
            `  - ${name} has no value in /etc/nibrunner/host.env: it is needed, because artifacts.store_url is an s3:// address`
        ),
        "  - metrics.listen_address is 192.0.2.1, which is not an address of this host",
        ""
      ])
      assert.isFalse(fs.existsSync(host.at("/calls")))
      fs.rmSync(host.at("/opt/qemu"))
      const missing = nibrunnerd(host, "install")
      assert.strictEqual(missing.status, 1)
      assert.match(missing.err, /^nibrunnerd: nothing was installed:\n {2}- \/opt\/qemu is missing/u)
    })
  )
})
