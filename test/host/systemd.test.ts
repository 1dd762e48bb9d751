/** A host under systemd itself, laid out and started by the commands. */
import * as fs from "node:fs"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { stringify } from "smol-toml"
import { prepareHello } from "../../scripts/local/hello.ts"
import { guestImage, type LocalHost, writeDocument } from "../../scripts/local/host.ts"
import { bootMachine, canBoot } from "./systemd/machine.ts"

const STATE = "/var/lib/nibrunner"
const PROXY_PORT = 8099

const configuration = (maxApps: number) =>
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
    volumes: { backend: "local-file", storage_prefix: "volumes" },
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

        const host = {
          artifacts: at(`${STATE}/artifact-store`),
          desired: at(`${STATE}/desired.json`)
        } as LocalHost
        const hello = yield* prepareHello(host)
        yield* writeDocument(host, hello.document("running"))
        const asked = () =>
          run("curl", "-sf", "-m", "5", "-H", `Host: ${hello.hostname}`, `http://127.0.0.1:${PROXY_PORT}/`)
        /** Visits since the program started, once the app answers. */
        const visit = Effect.gen(function* () {
          for (;;) {
            const { out, status } = asked()
            if (status === 0) return Number(/number <b>(\d+)<\/b> since/u.exec(out)?.[1])
            yield* Effect.sleep(500)
          }
        })
        assert.strictEqual(yield* visit, 1)
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
        assert.strictEqual(yield* visit, 2)

        run("systemctl", "stop", "nibrunnerd.service")
        assert.strictEqual(property("ActiveState"), "inactive")
        assert.strictEqual(run("pgrep", "-f", "qemu-system").out, vmm)
        assert.include(nibrunnerd("start").out, "nibrunnerd.service: started\n")
        assert.strictEqual(yield* visit, 3)
        assert.strictEqual(run("pgrep", "-f", "qemu-system").out, vmm)

        fs.writeFileSync(at("/etc/nibrunner/config.toml"), configuration(0))
        const refused = nibrunnerd("start")
        assert.strictEqual(refused.status, 1)
        assert.match(refused.err, /the configuration is refused: .*max_apps/u)
        assert.strictEqual(property("ActiveState"), "active")
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
