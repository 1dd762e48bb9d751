/** Laying out and starting a machine: its kernel, its accounts, its systemd. */
import { execFileSync, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { HostNotReady, InstallFailed } from "../../../src/services/Installer.ts"
import { makeMachine } from "./machine.ts"
import { local, onZerofs, treeOf } from "./support.ts"

const DAEMON = "nibrunnerd.service"
const ZEROFS = "nibrunner-zerofs.service"
const MOUNT = "mnt-zerofs.mount"
const PASSWORD = "ZEROFS_ENCRYPTION_PASSWORD=a password of this test\n"

/** What systemd was asked to do, without what it was only asked. */
const deeds = (calls: ReadonlyArray<string>) =>
  calls.filter((call) => call.startsWith("systemctl") && !call.startsWith("systemctl show"))

const reasonsOf = (problem: unknown): ReadonlyArray<string> => {
  assert.instanceOf(problem, HostNotReady)
  return (problem as HostNotReady).reasons
}

describe("nibrunnerd install on a machine", () => {
  it.live("says all that is missing at once, and changes nothing", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine({ ...onZerofs, "volumes.zerofs.binary": '"/opt/no-zerofs"' })
      for (const path of ["/opt/qemu", "/var/lib/nibrunner/guest/kernel"]) fs.rmSync(machine.at(path))
      machine.write("/etc/systemd/system/nibrunnerd.service", "mine\n")
      machine.write("/etc/subuid", "nibrunner:1:1\n")
      const before = treeOf(machine.root)
      const { out, problem } = yield* machine.install()
      const reasons = reasonsOf(problem)
      assert.deepStrictEqual(
        reasons.map((reason) => reason.split(" ")[0]),
        ["/opt/qemu", "/opt/no-zerofs", "the", "/etc/systemd/system/nibrunnerd.service", "/etc/subuid:"]
      )
      assert.match(reasons[1] ?? "", /put ZeroFS's program there/u)
      assert.match(reasons[2] ?? "", /guest\/kernel is absent.*nibrunnerd install --from DIR/u)
      assert.deepStrictEqual([out, machine.calls()], [[], []])
      assert.strictEqual(treeOf(machine.root), before)
    })
  )

  it.live("waits while another program changes the ids, and takes no lock of the dead for one", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(local)
      // a process that has ended: its number is free, or at least not a holder's
      const { pid } = spawnSync("true")
      machine.write("/etc/subgid.lock", `${pid}\0`)
      machine.write("/etc/subuid.lock", `${process.pid}\0`)
      const installing = yield* Effect.forkChild(machine.install(), { startImmediately: true })
      const ours = machine.at("/etc/subuid")
      // it is there while the lock is asked for
      while (!fs.existsSync(`${ours}.${process.pid}`)) yield* Effect.sleep(5)
      assert.isFalse(fs.existsSync(ours))
      machine.write("/etc/subuid", "someone:1879048192:10\n")
      fs.rmSync(machine.at("/etc/subuid.lock"))
      assert.isUndefined((yield* Fiber.join(installing)).problem)
      assert.strictEqual(machine.read("/etc/subuid"), "someone:1879048192:10\nnibrunner:1879048202:16384\n")
      assert.deepStrictEqual(
        fs.readdirSync(machine.at("/etc")).filter((name) => /^sub.*\./u.test(name)),
        []
      )
    })
  )

  it.live("refuses a program that systemd would not start", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine({
        ...onZerofs,
        "volumes.zerofs.binary": JSON.stringify('/opt/z"fs')
      })
      machine.write('/opt/z"fs', "#!/bin/sh\n", 0o755)
      const { problem } = yield* machine.install()
      assert.deepStrictEqual(reasonsOf(problem), [
        'systemd starts no program with a quote or a backslash in its path: move /opt/z"fs'
      ])
    })
  )

  it.live("loads modules, sets what is too low, makes the account, and the second time does nothing", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(onZerofs)
      const { out, problem } = yield* machine.install()
      assert.isUndefined(problem)
      assert.deepStrictEqual(machine.calls(), [
        `systemd-sysusers ${machine.at("/etc/sysusers.d/nibrunner-zerofs.conf")}`,
        "modprobe nf_conntrack",
        "modprobe tun",
        "modprobe nbd"
      ])
      assert.includeMembers(out, [
        "made the account zerofs",
        "loaded the kernel's module nbd",
        "set net.ipv4.ip_forward to 1, which was 0",
        "set net.netfilter.nf_conntrack_max to 262144, which was 65536"
      ])
      // larger than it has to be: it stays
      assert.strictEqual(machine.read("/proc/sys/net/netfilter/nf_conntrack_buckets"), "524288\n")
      assert.strictEqual(machine.read("/sys/module/nbd/parameters/nbds_max"), "101\n")
      assert.include(machine.read("/var/lib/nibrunner/versions.json"), '"zerofs": "1.2.3"')
      const again = yield* machine.install()
      assert.strictEqual(again.out[0], "Nothing had to be changed.")
      assert.deepStrictEqual(machine.calls(), [])
    })
  )

  it.live(
    "says both counts and the reboot where the module nbd has too few devices, and does not load it anew",
    () =>
      Effect.gen(function* () {
        const machine = yield* makeMachine(onZerofs)
        machine.write("/sys/module/nbd/parameters/nbds_max", "16\n")
        const { out, problem } = yield* machine.install()
        assert.isUndefined(problem)
        assert.isTrue(
          out.some((line) =>
            /nbd is loaded with 16 devices, and max_apps = 100 takes 101\..*reboot/u.test(line)
          ),
          out.join("\n")
        )
        assert.notInclude(machine.calls(), "modprobe nbd")
        assert.strictEqual(machine.read("/sys/module/nbd/parameters/nbds_max"), "16\n")
        machine.write("/sys/module/nbd/parameters/nbds_max", "101\n")
        assert.deepStrictEqual(
          (yield* machine.install()).out.filter((line) => line.includes("nbd")),
          []
        )
      })
  )

  it.live("says what the kernel refuses, and goes on", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(onZerofs)
      machine.mark("tun.absent")
      machine.mark("nf_conntrack.absent")
      const { out, problem } = yield* machine.install()
      assert.isUndefined(problem)
      assert.includeMembers(out, [
        "The kernel's module tun could not be loaded: modprobe: FATAL: Module tun not found in directory /lib/modules/6.",
        "This kernel has no net.netfilter.nf_conntrack_max."
      ])
    })
  )

  it.live("looks at no directory that something is mounted on: its server may be gone", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(onZerofs)
      machine.write("/proc/self/mountinfo", "36 35 0:50 / /mnt/zerofs rw - 9p /run/zerofs/9p.sock rw\n")
      assert.isUndefined((yield* machine.install()).problem)
      assert.isFalse(fs.existsSync(machine.at("/mnt/zerofs")))
    })
  )
})

describe("nibrunnerd start", () => {
  it.live("enables and starts what does not run, and then leaves alone what has not changed", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(onZerofs)
      machine.write("/etc/nibrunner/host.env", PASSWORD, 0o600)
      const first = yield* machine.start()
      assert.isUndefined(first.problem)
      assert.deepStrictEqual(deeds(machine.calls()), [
        "systemctl daemon-reload",
        `systemctl enable ${ZEROFS} ${DAEMON}`,
        `systemctl start ${ZEROFS}`,
        `systemctl start ${MOUNT}`,
        `systemctl start ${DAEMON}`
      ])
      assert.includeMembers(first.out, [`${ZEROFS}: started`, `${MOUNT}: started`, `${DAEMON}: started`])
      assert.match(
        first.out.at(-1) ?? "",
        /^The host runs\. Its document is \/var\/lib\/nibrunner\/desired\.json/u
      )
      const again = yield* machine.start()
      assert.isUndefined(again.problem)
      assert.deepStrictEqual(deeds(machine.calls()), [
        "systemctl daemon-reload",
        `systemctl enable ${ZEROFS} ${DAEMON}`
      ])
      assert.include(again.out, `${DAEMON}: runs, and nothing of what it was started with has changed`)
    })
  )

  it.live("restarts only what was started with something older", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(onZerofs)
      machine.write("/etc/nibrunner/host.env", PASSWORD, 0o600)
      yield* machine.start()
      const after = Effect.gen(function* () {
        machine.calls()
        const { out, problem } = yield* machine.start()
        assert.isUndefined(problem)
        return { out, deeds: deeds(machine.calls()).slice(2) }
      })

      machine.configure({ ...onZerofs, max_concurrent_vm_starts: "3" })
      const configured = yield* after
      assert.deepStrictEqual(configured.deeds, [`systemctl restart ${DAEMON}`])
      assert.include(configured.out, `${DAEMON}: restarted, because of /etc/nibrunner/config.toml`)

      machine.configure({ ...onZerofs, "volumes.zerofs.cache_disk_gib": "30" })
      assert.deepStrictEqual((yield* after).deeds, [
        `systemctl restart ${ZEROFS}`,
        `systemctl restart ${DAEMON}`
      ])

      machine.write("/etc/nibrunner/host.env", `${PASSWORD}NIBRUNNER_LOG=debug\n`, 0o600)
      const secrets = yield* after
      assert.deepStrictEqual(secrets.deeds, [`systemctl restart ${DAEMON}`])
      assert.isTrue(
        secrets.out.some((line) =>
          line.startsWith(`${ZEROFS} was started before /etc/nibrunner/host.env was changed`)
        )
      )

      machine.write("/opt/nibrunner/bin/nibrunnerd", "#!/bin/sh\n# newer\n", 0o755)
      assert.deepStrictEqual((yield* after).deeds, [`systemctl restart ${DAEMON}`])
    })
  )

  it.live("refuses with every reason, and starts nothing", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine({
        ...onZerofs,
        "artifacts.store_url": '"s3://bucket"',
        "proxy.http.listen_address": '"203.0.113.7"',
        "metrics.listen_address": '"2001:db8::7"',
        "proxy.http.tls.certificate": '"/etc/tls.crt"',
        "proxy.http.tls.key": '"/etc/tls.key"'
      })
      machine.write("/etc/nibrunner/host.env", `AWS_REGION=eu\nAWS_ACCESS_KEY_ID=""\n${PASSWORD}`, 0o600)
      machine.write("/etc/tls.crt", "-----BEGIN CERTIFICATE-----\nMIIB")
      const { problem } = yield* machine.start()
      assert.strictEqual((problem as HostNotReady).refused, "nothing was started")
      const tls = machine.at("/etc/tls.crt")
      assert.deepStrictEqual(reasonsOf(problem), [
        "AWS_ACCESS_KEY_ID has no value in /etc/nibrunner/host.env: it is needed, because artifacts.store_url is an s3:// address",
        "AWS_SECRET_ACCESS_KEY has no value in /etc/nibrunner/host.env: it is needed, because artifacts.store_url is an s3:// address",
        "/etc/tls.crt is cut off in one of its certificates (proxy.http.tls.certificate)",
        "proxy.http.listen_address is 203.0.113.7, which is not an address of this host",
        "metrics.listen_address is 2001:db8::7, which is not an address of this host"
      ])
      assert.isTrue(fs.existsSync(tls))
      assert.deepStrictEqual(deeds(machine.calls()), [])
    })
  )

  it.live("takes a certificate with its key and a pool of authorities, and says what of them is wrong", () =>
    Effect.gen(function* () {
      const files = {
        "proxy.http.tls.certificate": '"/etc/tls.crt"',
        "proxy.http.tls.key": '"/etc/tls.key"',
        "proxy.http.tls.client_ca.certificate": '"/etc/ca.crt"'
      }
      const machine = yield* makeMachine({ ...local, ...files })
      const make = (name: string) =>
        execFileSync(
          "openssl",
          [
            ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
            ...["-subj", `/CN=${name}`, "-keyout", machine.at(`/etc/${name}.key`)],
            ...["-out", machine.at(`/etc/${name}.crt`)]
          ],
          { stdio: "ignore" }
        )
      make("tls")
      make("ca")
      assert.isUndefined((yield* machine.start()).problem)

      fs.copyFileSync(machine.at("/etc/ca.key"), machine.at("/etc/tls.key"))
      machine.write("/etc/ca.crt", "no certificate\n")
      assert.deepStrictEqual(reasonsOf((yield* machine.start()).problem), [
        "/etc/tls.key is not the key of /etc/tls.crt (proxy.http.tls.key)",
        "/etc/ca.crt holds no PEM certificate (proxy.http.tls.client_ca.certificate)"
      ])

      machine.write("/etc/tls.key", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
      fs.rmSync(machine.at("/etc/ca.crt"))
      const reasons = reasonsOf((yield* machine.start()).problem)
      assert.strictEqual(
        reasons[0],
        "/etc/tls.key holds no private key in PEM that can be read without a password (proxy.http.tls.key)"
      )
      assert.match(
        reasons[1] ?? "",
        /\/etc\/ca\.crt does not exist \(proxy\.http\.tls\.client_ca\.certificate\)$/u
      )
    })
  )

  it.live("says what became of each unit where one fails, goes on with the others, and fails", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(onZerofs)
      machine.write("/etc/nibrunner/host.env", PASSWORD, 0o600)
      machine.mark(`${ZEROFS}.fails`)
      machine.mark(`${MOUNT}.fails`)
      const { out, problem } = yield* machine.start()
      assert.instanceOf(problem, InstallFailed)
      assert.include(
        (problem as InstallFailed).reason,
        `journalctl -n 50 -u ${ZEROFS} -u ${MOUNT} -u ${DAEMON}`
      )
      assert.isTrue(
        out.some((line) => line.startsWith(`${ZEROFS}: failed: systemctl start ${ZEROFS}: Job for`))
      )
      assert.isFalse(out.some((line) => line.startsWith(MOUNT)))
      assert.include(out, `${DAEMON}: started`)

      machine.unmark(`${ZEROFS}.fails`)
      machine.calls()
      const mended = yield* machine.start()
      assert.isUndefined(mended.problem)
      assert.isTrue(
        mended.out.some((line) => line.startsWith(`${MOUNT}: not active, which the host runs without: `))
      )
      assert.include(mended.out, `${ZEROFS}: started`)
      // systemd would refuse a unit that has failed too often
      assert.include(machine.calls(), `systemctl reset-failed ${ZEROFS}`)
    })
  )

  it.live("starts the daemon alone where volumes are files of this disk", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(local)
      assert.isUndefined((yield* machine.start()).problem)
      assert.deepStrictEqual(
        machine.calls().filter((call) => !call.startsWith("systemctl show")),
        ["systemctl daemon-reload", `systemctl enable ${DAEMON}`, `systemctl start ${DAEMON}`]
      )
    })
  )

  it.live("says why where this machine has no systemd that answers", () =>
    Effect.gen(function* () {
      const machine = yield* makeMachine(local)
      fs.writeFileSync(
        `${machine.directory}/bin/systemctl`,
        "#!/bin/sh\necho 'no systemd here' >&2\nexit 1\n"
      )
      const { problem } = yield* machine.start()
      assert.instanceOf(problem, InstallFailed)
      assert.strictEqual((problem as InstallFailed).reason, "systemctl daemon-reload: no systemd here")
    })
  )
})
