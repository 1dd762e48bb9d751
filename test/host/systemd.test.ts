/** A host under systemd itself, laid out and started by the commands. */
import * as fs from "node:fs"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { stringify } from "smol-toml"
import { prepareHello } from "../../scripts/local/hello.ts"
import { guestImage, type LocalHost, writeDocument } from "../../scripts/local/host.ts"
import { bootMachine, canBoot, installStandIn, type Machine } from "./systemd/machine.ts"

const STATE = "/var/lib/nibrunner"
const PROXY_PORT = 8099

const onDisk = { backend: "local-file", storage_prefix: "volumes" }

/** With a cache of so many GiB. */
const onZerofs = (cacheGib: number) => ({
  backend: "zerofs",
  storage_prefix: "volumes",
  zerofs: {
    binary: "/opt/zerofs/zerofs",
    config_file: "/etc/zerofs/config.toml",
    mount_path: "/mnt/zerofs",
    nbd_socket_path: "/run/zerofs/nbd.sock",
    ninep_socket_path: "/run/zerofs/9p.sock",
    rpc_socket_path: "/run/zerofs/rpc.sock",
    storage_url: "/data/store",
    cache_dir: "/data/cache",
    cache_disk_gib: cacheGib,
    cache_memory_gib: 1,
    checkpoint_runtime_dir: "/run/zerofs-checkpoint",
    checkpoint_config_file: "/etc/zerofs/checkpoint.toml",
    checkpoint_cache_dir: "/data/checkpoint-cache"
  }
})

/** Visits of the app since its program started, once it answers. */
const visits = ({ run }: Machine, hostname: string) =>
  Effect.gen(function* () {
    for (;;) {
      const url = `http://127.0.0.1:${PROXY_PORT}/`
      const { out, status } = run("curl", "-sf", "-m", "60", "-H", `Host: ${hostname}`, url)
      if (status === 0) return Number(/number <b>(\d+)<\/b> since/u.exec(out)?.[1])
      yield* Effect.sleep(500)
    }
  })

/** The program that was visited before still runs. */
const goneOn = (visit: Effect.Effect<number>, last: number) =>
  Effect.tap(visit, (now) => Effect.sync(() => assert.isAbove(now, last)))

/** The paths of the machine's host, as this process sees them. */
const hostOf = ({ at }: Machine) =>
  ({ artifacts: at(`${STATE}/artifact-store`), desired: at(`${STATE}/desired.json`) }) as LocalHost

const configuration = (maxApps: number, volumes: object = onDisk) =>
  `${stringify({
    max_apps: maxApps,
    paths: {
      state_dir: STATE,
      runtime_dir: "/run/nibrunner",
      snapshot_dir: `${STATE}/snapshots`,
      guest_image_dir: `${STATE}/guest`,
      desired_state_file: `${STATE}/desired.json`
    },
    artifacts: { store_url: `${STATE}/artifact-store` },
    volumes,
    exports: { store_url: `${STATE}/export-store`, staging_dir: `${STATE}/exports` },
    proxy: { http: { listen_address: "127.0.0.1", port: PROXY_PORT } },
    hypervisor: { backend: "qemu", binary: "/usr/bin/qemu-system-x86_64", network: "user" }
  })}\n`

describe.skipIf(!canBoot)("a host under systemd", () => {
  it.live(
    "is ready when systemctl says so, and its apps live on while the daemon is restarted and stopped",
    () =>
      Effect.gen(function* () {
        const machine = yield* bootMachine
        const { at, run } = machine
        const nibrunnerd = (...words: ReadonlyArray<string>) => run("/opt/nibrunner/bin/nibrunnerd", ...words)
        const property = (name: string) =>
          run("systemctl", "show", "--value", "-p", name, "nibrunnerd.service").out.trim()

        fs.writeFileSync(at("/etc/nibrunner/config.toml"), configuration(4))
        fs.cpSync(guestImage, at("/root/guest"), { recursive: true })
        const installed = nibrunnerd("install", "--from", "/root/guest")
        assert.strictEqual(installed.status, 0, installed.err)
        assert.strictEqual(property("ActiveState"), "inactive")

        const started = nibrunnerd("start")
        assert.strictEqual(started.status, 0, started.err + started.out)
        assert.include(started.out, "nibrunnerd.service: started\n")
        // Type=notify: it is active only because the daemon has said that it serves
        assert.deepStrictEqual([property("ActiveState"), property("Type")], ["active", "notify"])
        assert.strictEqual(run("systemctl", "is-enabled", "nibrunnerd.service").out, "enabled\n")
        assert.include(
          nibrunnerd("start").out,
          "nibrunnerd.service: runs, and nothing of what it was started with has changed\n"
        )

        const host = hostOf(machine)
        const hello = yield* prepareHello(host)
        yield* writeDocument(host, hello.document("running"))
        const visit = visits(machine, hello.hostname)
        // a visit that was not waited for counts as well; a program that began anew would be at 1
        let last = yield* visit
        const vmm = run("pgrep", "-f", "qemu-system").out
        assert.match(vmm, /^\d+\n$/u)

        fs.writeFileSync(at("/etc/nibrunner/config.toml"), configuration(5))
        const before = property("MainPID")
        const restarted = nibrunnerd("start")
        assert.include(
          restarted.out,
          "nibrunnerd.service: restarted, because of /etc/nibrunner/config.toml\n",
          restarted.err
        )
        assert.notStrictEqual(property("MainPID"), before)
        assert.strictEqual(run("pgrep", "-f", "qemu-system").out, vmm)
        last = yield* goneOn(visit, last)

        run("systemctl", "stop", "nibrunnerd.service")
        assert.strictEqual(property("ActiveState"), "inactive")
        assert.strictEqual(run("pgrep", "-f", "qemu-system").out, vmm)
        assert.include(nibrunnerd("start").out, "nibrunnerd.service: started\n")
        last = yield* goneOn(visit, last)
        assert.strictEqual(run("pgrep", "-f", "qemu-system").out, vmm)

        fs.writeFileSync(at("/etc/nibrunner/config.toml"), configuration(0))
        const refused = nibrunnerd("start")
        assert.strictEqual(refused.status, 1)
        assert.match(refused.err, /the configuration is refused: .*max_apps/u)
        assert.strictEqual(property("ActiveState"), "active")
      }).pipe(Effect.provide(NodeServices.layer))
  )

  it.live(
    "has volumes on a ZeroFS that may write to its own only, and that is restarted under its apps",
    () =>
      Effect.gen(function* () {
        const machine = yield* bootMachine
        const { at, run } = machine
        const nibrunnerd = (...words: ReadonlyArray<string>) => run("/opt/nibrunner/bin/nibrunnerd", ...words)
        const zerofs = (name: string) =>
          run("systemctl", "show", "--value", "-p", name, "nibrunner-zerofs.service").out.trim()
        installStandIn(machine)
        fs.writeFileSync(at("/etc/nibrunner/config.toml"), configuration(4, onZerofs(1)))
        fs.cpSync(guestImage, at("/root/guest"), { recursive: true })
        const installed = nibrunnerd("install", "--from", "/root/guest")
        assert.strictEqual(installed.status, 0, installed.err)
        assert.include(installed.out, "made the account zerofs\n")
        const refused = nibrunnerd("start")
        assert.match(refused.err, /ZEROFS_ENCRYPTION_PASSWORD has no value/u)
        assert.strictEqual(zerofs("ActiveState"), "inactive")

        fs.appendFileSync(at("/etc/nibrunner/host.env"), "ZEROFS_ENCRYPTION_PASSWORD=a password\n")
        const started = nibrunnerd("start")
        assert.strictEqual(
          started.status,
          0,
          `${started.err}${started.out}${run("systemctl", "status", "--no-pager", "-l", "nibrunner-zerofs.service").out}`
        )
        assert.include(started.out, "nibrunner-zerofs.service: started\n")
        const owner = run("id", "-u", "zerofs").out
        const pid = zerofs("MainPID")
        assert.strictEqual(run("stat", "-c", "%u", `/proc/${pid}`).out, owner)
        assert.strictEqual(run("stat", "-c", "%a %u", "/run/zerofs").out, `700 ${owner}`)

        const host = hostOf(machine)
        const hello = yield* prepareHello(host)
        yield* writeDocument(host, hello.document("running"))
        const visit = visits(machine, hello.hostname)
        // a visit that was not waited for counts as well; a program that began anew would be at 1
        const last = yield* visit

        fs.writeFileSync(at("/etc/nibrunner/config.toml"), configuration(4, onZerofs(2)))
        const restarted = nibrunnerd("start")
        assert.strictEqual(restarted.status, 0, restarted.err)
        assert.include(
          restarted.out,
          "nibrunner-zerofs.service: restarted, because of /etc/zerofs/config.toml\n"
        )
        assert.notStrictEqual(zerofs("MainPID"), pid)
        // the program that was visited before still runs, on its volume
        yield* goneOn(visit, last)
      }).pipe(Effect.provide(NodeServices.layer))
  )

  it.live("fails to start with the way to the reason where the daemon does not come up", () =>
    Effect.gen(function* () {
      const { at, run } = yield* bootMachine
      fs.writeFileSync(at("/etc/nibrunner/config.toml"), configuration(4))
      fs.cpSync(guestImage, at("/root/guest"), { recursive: true })
      run("/opt/nibrunner/bin/nibrunnerd", "install", "--from", "/root/guest")
      // a daemon that cannot have its directory
      fs.rmSync(at(`${STATE}/state`), { recursive: true, force: true })
      fs.writeFileSync(at(`${STATE}/state`), "in the way")
      const { err, out, status } = run("/opt/nibrunner/bin/nibrunnerd", "start")
      assert.strictEqual(status, 1)
      assert.match(out, /^nibrunnerd\.service: failed: systemctl start nibrunnerd\.service: Job for/mu)
      assert.match(err, /journalctl -n 50 -u nibrunnerd\.service$/mu)
    })
  )
})
