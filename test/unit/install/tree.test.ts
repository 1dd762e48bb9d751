/** The real command on a directory that stands for a host. */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { decodeConfig } from "../../../src/config/decode.ts"
import { MARKER } from "../../../src/install/generated.ts"
import { type DottedKeys, tomlOf } from "../config/toml-text.ts"
import { CONFIG_FILE, checkout, local, makeRoot, onZerofs, type Root, treeOf, writeImage } from "./support.ts"

const program = path.join(checkout, "bin/nibrunnerd.ts")

const install = ({ root }: Root, ...args: ReadonlyArray<string>) => {
  const { status, stderr, stdout } = spawnSync(
    process.execPath,
    [program, "install", "--root", root, ...args],
    { encoding: "utf8", env: { PATH: process.env.PATH, NIBRUNNER_CONFIG: CONFIG_FILE } }
  )
  return { status, out: stdout, err: stderr }
}

const rootWith = (keys: DottedKeys) =>
  Effect.tap(makeRoot, (host) => Effect.sync(() => host.write(CONFIG_FILE, tomlOf(keys))))

/** What the tree has to be; `UPDATE_INSTALL_VECTORS=1` writes it, to be read before it is committed. */
const expected = (name: string, tree: string): string => {
  const file = path.join(checkout, "test/vectors", `install-${name}.txt`)
  if (process.env.UPDATE_INSTALL_VECTORS === "1") fs.writeFileSync(file, tree)
  return fs.readFileSync(file, "utf8")
}

/** The program is where the checkout is; the tree is compared as if that was /opt/nibrunner. */
const laidOut = (host: Root): string => treeOf(host.root).replaceAll(checkout, "/opt/nibrunner")

describe("nibrunnerd install --root", () => {
  for (const [name, keys] of [
    ["local", local],
    ["zerofs", onZerofs]
  ] as const) {
    it.live(`lays out a host with volumes on ${name} file by file, and the second time changes nothing`, () =>
      Effect.gen(function* () {
        const host = yield* rootWith(keys)
        const first = install(host)
        assert.strictEqual(first.status, 0, first.err)
        assert.strictEqual(laidOut(host), expected(name, laidOut(host)))
        const before = fs.statSync(host.at("/etc/systemd/system/nibrunnerd.service")).ino
        const second = install(host)
        assert.strictEqual(second.status, 0, second.err)
        assert.match(second.out, /^Nothing had to be changed\.\n/u)
        assert.notMatch(second.out, /^(?:wrote|replaced|made|set) /mu)
        assert.strictEqual(fs.statSync(host.at("/etc/systemd/system/nibrunnerd.service")).ino, before)
      })
    )
  }

  it.live("says each change, what is left to other packages, and at the end what is to be done", () =>
    Effect.gen(function* () {
      const host = yield* rootWith({ ...onZerofs, "artifacts.store_url": '"s3://bucket"' })
      const { out } = install(host)
      assert.include(out, "wrote /etc/systemd/system/nibrunner-zerofs.service\n")
      assert.include(out, "made the directory /var/lib/nibrunner\n")
      assert.match(out, /set the ids \d+ to \d+ aside for microVMs in \/etc\/subuid\n/u)
      const lines = out.trimEnd().split("\n")
      const image = `${host.at("/var/lib/nibrunner/guest")}/manifest.json is absent`
      assert.deepStrictEqual(lines.slice(-4), [
        "Next:",
        `  1. nibrunnerd install --root ${host.root} --from DIR, with the directory of a built guest image: nothing boots as it is, because the guest image is not usable: ${image}: build it with \`npm run image\``,
        "  2. set ZEROFS_ENCRYPTION_PASSWORD, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY in /etc/nibrunner/host.env",
        "  3. on the host itself: nibrunnerd start"
      ])
      assert.match(
        lines.at(-5) ?? "",
        /^Left to other packages: \/opt\/qemu, mke2fs, .*, systemd-notify \(Debian's e2fsprogs, squashfs-tools, .*systemd\)\.$/u
      )
    })
  )

  it.live("writes a starter configuration where there is none, and says how it was measured", () =>
    Effect.gen(function* () {
      const host = yield* makeRoot
      const { err, out, status } = install(host)
      assert.strictEqual(status, 0, err)
      const text = host.read(CONFIG_FILE)
      const decoded = decodeConfig(text, CONFIG_FILE)
      assert.isTrue(decoded._tag === "Success")
      assert.match(text, /^# How many apps this host has room for\. Measured here: memory for \d+ apps/mu)
      assert.include(out, `  1. look through ${CONFIG_FILE}\n`)
      assert.strictEqual(fs.statSync(host.at(CONFIG_FILE)).mode & 0o777, 0o644)
    })
  )

  it.live("never writes to a configuration or a host.env that is there", () =>
    Effect.gen(function* () {
      const host = yield* rootWith(local)
      host.write("/etc/nibrunner/host.env", "AWS_REGION=eu\n", 0o640)
      const config = host.read(CONFIG_FILE)
      const { out } = install(host, "--force")
      assert.strictEqual(host.read(CONFIG_FILE), config)
      assert.strictEqual(host.read("/etc/nibrunner/host.env"), "AWS_REGION=eu\n")
      assert.include(out, "others than its owner may read it: chmod 600 /etc/nibrunner/host.env")
    })
  )

  it.live("refuses a wrong configuration by its problem, and writes nothing", () =>
    Effect.gen(function* () {
      const host = yield* rootWith({ ...local, max_apps: "0" })
      const before = treeOf(host.root)
      const { err, status } = install(host)
      assert.strictEqual(status, 1)
      assert.match(err, /the configuration is refused: .*config\.toml:1:12: max_apps/u)
      assert.strictEqual(treeOf(host.root), before)
    })
  )

  it.live("replaces no file that is not its own, names all of them, and does with --force", () =>
    Effect.gen(function* () {
      const host = yield* rootWith(onZerofs)
      host.write("/etc/systemd/system/nibrunnerd.service", "[Service]\nExecStart=/mine\n")
      fs.mkdirSync(host.at("/etc/sysctl.d"), { recursive: true })
      fs.symlinkSync("/dev/null", host.at("/etc/sysctl.d/99-nibrunner.conf"))
      const before = treeOf(host.root)
      const refused = install(host)
      assert.strictEqual(refused.status, 1)
      assert.strictEqual(
        refused.err,
        [
          "nibrunnerd: nothing was installed:",
          "  - /etc/sysctl.d/99-nibrunner.conf is there and was not written by install: move it away, or replace it with --force",
          "  - /etc/systemd/system/nibrunnerd.service is there and was not written by install: move it away, or replace it with --force",
          ""
        ].join("\n")
      )
      assert.strictEqual(treeOf(host.root), before)
      const forced = install(host, "--force")
      assert.strictEqual(forced.status, 0, forced.err)
      assert.include(forced.out, "replaced /etc/systemd/system/nibrunnerd.service\n")
      assert.isTrue(host.read("/etc/systemd/system/nibrunnerd.service").startsWith(MARKER))
      assert.isTrue(fs.lstatSync(host.at("/etc/sysctl.d/99-nibrunner.conf")).isFile())
    })
  )

  it.live("follows the configuration: what it wrote is replaced, and removed when it is needed no more", () =>
    Effect.gen(function* () {
      const host = yield* rootWith(onZerofs)
      install(host)
      host.write(CONFIG_FILE, tomlOf({ ...onZerofs, max_apps: "300" }))
      const more = install(host)
      assert.include(more.out, "replaced /etc/modprobe.d/nibrunner-nbd.conf\n")
      assert.include(host.read("/etc/modprobe.d/nibrunner-nbd.conf"), "nbds_max=301\n")
      assert.notInclude(more.out, "replaced /etc/zerofs/config.toml")
      host.write(CONFIG_FILE, tomlOf({ ...local, max_apps: "300" }))
      const less = install(host)
      assert.include(
        less.out,
        "removed /etc/modprobe.d/nibrunner-nbd.conf: this configuration needs it no more\n"
      )
      assert.isFalse(fs.existsSync(host.at("/etc/modprobe.d/nibrunner-nbd.conf")))
    })
  )

  it.live("has ZeroFS ask another S3 where host.env names one", () =>
    Effect.gen(function* () {
      const host = yield* rootWith({ ...onZerofs, "volumes.zerofs.storage_url": '"s3://bucket/host"' })
      host.write("/etc/nibrunner/host.env", 'AWS_ENDPOINT_URL_S3="http://127.0.0.1:9000"\n', 0o600)
      install(host)
      const config = host.read("/etc/zerofs/config.toml")
      assert.include(config, 'endpoint = "${AWS_ENDPOINT_URL_S3}"\n')
      assert.include(config, 'allow_http = "true"\n')
    })
  )

  it.live("copies a guest image in, once; refuses one that is not what its manifest says", () =>
    Effect.gen(function* () {
      const host = yield* rootWith(local)
      const built = path.join(host.directory, "built")
      writeImage(built)
      const first = install(host, "--from", built)
      assert.strictEqual(first.status, 0, first.err)
      assert.isTrue(first.out.endsWith("Next:\n  1. on the host itself: nibrunnerd start\n"), first.out)
      assert.include(first.out, "laid the guest image image-1 down in /var/lib/nibrunner/guest\n")
      assert.strictEqual(fs.statSync(host.at("/var/lib/nibrunner/guest/jail")).mode & 0o777, 0o755)
      assert.include(host.read("/var/lib/nibrunner/versions.json"), '"guestImage": "image-1"')
      assert.match(install(host, "--from", built).out, /^Nothing had to be changed/u)
      writeImage(built, "image-2")
      const next = install(host, "--from", built)
      assert.include(next.out, "replaced the guest image image-1 in /var/lib/nibrunner/guest by image-2\n")
      fs.writeFileSync(path.join(built, "kernel"), "another")
      const before = treeOf(host.root)
      const refused = install(host, "--from", built)
      assert.strictEqual(refused.status, 1)
      assert.match(refused.err, /kernel has sha-256 [0-9a-f]{64}, but manifest\.json says [0-9a-f]{64}/u)
      assert.strictEqual(treeOf(host.root), before)
      const absent = install(host, "--from", path.join(host.directory, "nothing"))
      assert.match(absent.err, /nothing\/manifest\.json is absent/u)
    })
  )

  it.live("replaces an installed image that was damaged by the very same one", () =>
    Effect.gen(function* () {
      const host = yield* rootWith(local)
      const built = path.join(host.directory, "built")
      writeImage(built)
      install(host, "--from", built)
      host.write("/var/lib/nibrunner/guest/base", "damaged")
      assert.strictEqual(install(host, "--from", built).status, 0)
      assert.strictEqual(host.read("/var/lib/nibrunner/guest/base"), "base of image-1")
    })
  )

  it.live("keeps the ids that are set aside, adds what lacks, and refuses what cannot be", () =>
    Effect.gen(function* () {
      const host = yield* rootWith(local)
      host.write("/etc/subuid", "someone:100000:65536\nnibrunner:500000:65536")
      host.write("/etc/subgid", "someone:100000:65536\n")
      assert.strictEqual(install(host).status, 0)
      assert.strictEqual(host.read("/etc/subuid"), "someone:100000:65536\nnibrunner:500000:65536")
      assert.strictEqual(host.read("/etc/subgid"), "someone:100000:65536\nnibrunner:500000:16384\n")
      host.write("/etc/subgid", "other:510000:10\nnibrunner:500000:16384\n")
      const refused = install(host)
      assert.strictEqual(refused.status, 1)
      assert.match(refused.err, /the ids of nibrunner from 500000 on belong to other too/u)
    })
  )
})
