/** Bundles of filesystems that mke2fs and the kernel have made, read back by GNU tar. */
import {
  appendFileSync,
  chmodSync,
  closeSync,
  copyFileSync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync
} from "node:fs"
import * as path from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import {
  bundleInto,
  compiledBundle,
  layerOf,
  listing,
  served,
  tool,
  unpacked,
  volumeOfTree
} from "../../support/bundle/fixture.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

class Program extends Context.Service<Program, string>()("test/Program") {}
const layerProgram = Layer.effect(Program, compiledBundle)

const isRoot = process.getuid?.() === 0

/** A tree with what a filesystem may hold and every user may make. */
const plant = (root: string) => {
  const upper = path.join(root, "upper")
  mkdirSync(path.join(upper, "app/data"), { recursive: true })
  mkdirSync(path.join(root, "work"))
  const at = (name: string) => path.join(upper, "app/data", name)
  writeFileSync(at("plain"), "some text\n")
  writeFileSync(at("empty"), "")
  linkSync(at("plain"), at("linked"))
  symlinkSync("../nowhere", at("symlink"))
  symlinkSync("y".repeat(300), at("long-symlink"))
  writeFileSync(at("large"), Buffer.alloc(3_000_001, "0123456789abcdef!"))
  const sparse = openSync(at("sparse"), "w")
  writeSync(sparse, "middle", 1_000_000)
  ftruncateSync(sparse, 5_000_000)
  closeSync(sparse)
  writeFileSync(at("name with\nnewline"), "x")
  writeFileSync(Buffer.from([...Buffer.from(`${at("bytes-")}`), 0xff, 0xfe, 0xc3]), "not UTF-8")
  writeFileSync(at("ü".repeat(100)), "a long name")
  mkdirSync(at(`${"d".repeat(200)}/${"e".repeat(200)}`), { recursive: true })
  writeFileSync(at(`${"d".repeat(200)}/${"e".repeat(200)}/${"f".repeat(200)}`), "deep")
  for (let number = 0; number < 700; number++)
    writeFileSync(at(`many-${number}`), `${number}\n`.repeat(number))
  chmodSync(at("many-1"), 0o4711)
  chmodSync(at("many-2"), 0o600)
  utimesSync(at("many-3"), 1_234_567_890.125, 1_234_567_891.5)
  tool("setfattr", "-n", "user.note", "-v", "0x000a3dff", at("plain"))
  mkdirSync(path.join(upper, "lost+found"))
  writeFileSync(path.join(upper, "lost+found/mine"), "an app's own")
}

/** The time when it was unpacked is no property of the tree. */
const same = (left: string, right: string) => {
  const rows = (text: string) => text.split("\n")
  const [a, b] = [rows(left), rows(right)]
  const different = a.findIndex((row, index) => row !== b[index])
  assert.strictEqual(a[different], b[different])
  assert.strictEqual(a.length, b.length)
}

const fails = (socketPath: string, program: string) =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const error = yield* Effect.flip(bundleInto(directory, socketPath).pipe(Effect.provide(layerOf(program))))
    return error.message
  })

describe("a bundle", () => {
  layer(layerProgram, { timeout: 120_000, excludeTestServices: true })((it) => {
    for (const [kind, features] of [
      ["with extents", []],
      ["of the older kind, by lists of blocks", ["-O", "^extent,^64bit,^flex_bg,^metadata_csum"]],
      ["with content in its inodes", ["-O", "inline_data"]],
      ["with inodes of 128 bytes and blocks of 1 KiB", ["-I", "128", "-b", "1024"]]
    ] as const) {
      it.effect(`has all of a filesystem ${kind}`, () =>
        Effect.gen(function* () {
          const directory = yield* temporaryDirectory
          const tree = path.join(directory, "tree")
          plant(tree)
          // With content in inodes mke2fs 1.47.0 forgets a hole at the end of a file.
          if (features.some((feature) => feature === "inline_data"))
            writeFileSync(path.join(tree, "upper/app/data/sparse"), "the end", { flag: "a" })
          const small = features.some((feature) => feature === "128")
          if (small) tool("setfattr", "-x", "user.note", path.join(tree, "upper/app/data/plain"))
          const { socketPath } = yield* served(volumeOfTree(directory, tree, features))
          const { archive, leftOut, usedBytes } = yield* bundleInto(directory, socketPath).pipe(
            Effect.provide(layerOf(yield* Program))
          )
          const out = unpacked(archive, path.join(directory, "out"))
          // mke2fs takes no fractions of a second along.
          const whole = (text: string) => text.replace(/ (\d+)\.\d+ /gu, " $1 ")
          same(whole(listing(path.join(out, "data"))), whole(listing(path.join(tree, "upper"))))
          assert.deepStrictEqual(leftOut, { sockets: 0, fifos: 0, devices: 0 })
          assert.isAbove(usedBytes, 4_000_000)
          assert.isBelow(statSync(path.join(out, "data/app/data/sparse")).blocks * 512, 100_000)
        }).pipe(Effect.scoped)
      )
    }

    it.effect("begins with .env, which its owner alone may read", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const tree = path.join(directory, "tree")
        mkdirSync(path.join(tree, "upper"), { recursive: true })
        const { socketPath } = yield* served(volumeOfTree(directory, tree))
        const environment = "A='ü'\n".repeat(20_000)
        const { archive } = yield* bundleInto(directory, socketPath, { environment }).pipe(
          Effect.provide(layerOf(yield* Program))
        )
        const [first, second] = tool("tar", "--full-time", "--utc", "-tvzf", archive).split("\n")
        assert.match(first ?? "", /^-rw------- 0\/0 +140000 2023-11-14 22:13:20 \.env$/u)
        assert.match(second ?? "", / data\/$/u)
        const out = unpacked(archive, path.join(directory, "out"))
        assert.strictEqual(readFileSync(path.join(out, ".env"), "utf8"), environment)
      }).pipe(Effect.scoped)
    )

    it.effect("of a volume that no guest has seen is an empty data/", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        mkdirSync(path.join(directory, "tree"))
        const { socketPath } = yield* served(volumeOfTree(directory, path.join(directory, "tree")))
        const { archive } = yield* bundleInto(directory, socketPath).pipe(
          Effect.provide(layerOf(yield* Program))
        )
        assert.strictEqual(tool("tar", "-tzf", archive), "data/\n")
      }).pipe(Effect.scoped)
    )

    const plantAsRoot = (upper: string) => {
      mkdirSync(path.join(upper, "opaque"), { recursive: true })
      const at = (name: string) => path.join(upper, name)
      tool("mknod", at("whiteout"), "c", "0", "0")
      linkSync(at("whiteout"), at("another"))
      tool("mknod", at("null"), "c", "1", "3")
      tool("mknod", at("disk"), "b", "8", "0")
      tool("mkfifo", at("fifo"))
      tool(
        "python3",
        "-c",
        "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])",
        at("socket")
      )
      tool("setfattr", "-n", "trusted.overlay.opaque", "-v", "y", at("opaque"))
      tool("setfattr", "-n", "trusted.overlay.origin", "-v", "0x00fb", at("opaque"))
      tool("setfattr", "-n", "trusted.overlay.impure", "-v", "y", upper)
      writeFileSync(at("owned"), "x")
      tool("chown", "65534:3000000000", at("owned"))
      tool("touch", "-d", "1960-01-01 00:00:00.25 UTC", at("owned"))
      writeFileSync(at("later"), "x")
      tool("touch", "-d", "2300-01-01 00:00:00.75 UTC", at("later"))
      tool("fallocate", "-l", "1M", at("set-aside"))
    }

    /** The volume mounted by this machine's kernel: it is of the test's own making. */
    const mounted = (directory: string, volume: string) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          const point = path.join(directory, "mounted")
          mkdirSync(point)
          tool("mount", "-o", "loop", volume, point)
          return point
        }),
        (point) => Effect.sync(() => void tool("umount", "--lazy", point))
      )

    it.effect.skipIf(!isRoot)(
      "has overlayfs's marks as the kernel writes them, and says what it left out",
      () =>
        Effect.gen(function* () {
          const directory = yield* temporaryDirectory
          mkdirSync(path.join(directory, "tree"))
          const volume = volumeOfTree(directory, path.join(directory, "tree"))
          const before = yield* Effect.gen(function* () {
            const upper = path.join(yield* mounted(directory, volume), "upper")
            plantAsRoot(upper)
            return listing(upper)
          }).pipe(Effect.scoped)
          tool("sync")
          const { socketPath } = yield* served(volume)
          const { archive, leftOut } = yield* bundleInto(directory, socketPath).pipe(
            Effect.provide(layerOf(yield* Program))
          )
          assert.deepStrictEqual(leftOut, { sockets: 1, fifos: 1, devices: 2 })
          const out = path.join(unpacked(archive, path.join(directory, "out")), "data")
          const expected = before
            .split("\n")
            .filter((row) => !/^(?:null|disk|fifo|socket) |^trusted\.overlay\.(?:origin|impure)=/u.test(row))
            .join("\n")
            .replace("# file: .\n\n", "")
          assert.include(expected, "trusted.overlay.opaque=0x79")
          same(listing(out), expected)
          const rows = tool("tar", "-tvzf", archive).split("\n")
          assert.strictEqual(rows.filter((row) => /^c.* 0,0 .*(?:whiteout|another)$/u.test(row)).length, 2)
        }).pipe(Effect.scoped)
    )

    it.effect.skipIf(!isRoot)("of a volume that was not unmounted has what its journal has committed", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        mkdirSync(path.join(directory, "tree"))
        const volume = volumeOfTree(directory, path.join(directory, "tree"))
        const cut = path.join(directory, "cut.img")
        const before = yield* Effect.gen(function* () {
          const upper = path.join(yield* mounted(directory, volume), "upper")
          mkdirSync(upper)
          for (let round = 0; round < 20; round++) {
            mkdirSync(path.join(upper, `dir-${round}`))
            for (let file = 0; file < 30; file++)
              writeFileSync(path.join(upper, `dir-${round}/file-${file}`), `${round} ${file}\n`.repeat(500))
            if (round % 3 === 2) tool("rm", "-r", path.join(upper, `dir-${round - 1}`))
            tool("bash", "-c", 'exec 9<"$1"; python3 -c "import os; os.fsync(9)"', "bash", upper)
            tool("bash", "-c", 'for f in "$1"/dir-*/*; do echo "$f"; done | xargs sync -d', "bash", upper)
          }
          copyFileSync(volume, cut)
          return listing(upper)
        }).pipe(Effect.scoped)
        assert.match(tool("dumpe2fs", "-h", cut), /needs_recovery/u)
        const { socketPath } = yield* served(cut)
        const { archive } = yield* bundleInto(directory, socketPath).pipe(
          Effect.provide(layerOf(yield* Program))
        )
        same(listing(path.join(unpacked(archive, path.join(directory, "out")), "data")), before)
      }).pipe(Effect.scoped)
    )
  })
})

describe("a filesystem that is damaged or made to hurt", () => {
  layer(layerProgram, { timeout: 300_000, excludeTestServices: true })((it) => {
    const withVolume = (features: ReadonlyArray<string> = []) =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const tree = path.join(directory, "tree")
        plant(tree)
        return { directory, volume: volumeOfTree(directory, tree, features) }
      })

    it.effect("that is none is refused", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const volume = path.join(directory, "volume.img")
        writeFileSync(volume, Buffer.alloc(2 ** 20))
        const { socketPath } = yield* served(volume)
        assert.match(yield* fails(socketPath, yield* Program), /filesystem cannot be opened/u)
      }).pipe(Effect.scoped)
    )

    it.effect("whose directories lead in a circle is refused by name", () =>
      Effect.gen(function* () {
        const { volume } = yield* withVolume()
        tool("debugfs", "-w", "-R", "link /upper/app /upper/app/data/circle", volume)
        const { socketPath } = yield* served(volume)
        assert.match(
          yield* fails(socketPath, yield* Program),
          /"data\/app\/data\/circle" is a directory with two names/u
        )
      }).pipe(Effect.scoped)
    )

    it.effect("with a name that leads elsewhere is refused", () =>
      Effect.gen(function* () {
        const { volume } = yield* withVolume(["-O", "^metadata_csum"])
        const bytes = readFileSync(volume)
        for (let at = bytes.indexOf("many-699"); at >= 0; at = bytes.indexOf("many-699", at + 1))
          bytes.write("../../aa", at)
        writeFileSync(volume, bytes)
        const { socketPath } = yield* served(volume)
        assert.match(yield* fails(socketPath, yield* Program), /a name in it that no file can have/u)
      }).pipe(Effect.scoped)
    )

    it.effect("with files that share blocks, more than it has room for, is refused", () =>
      Effect.gen(function* () {
        const { volume } = yield* withVolume(["-O", "^metadata_csum"])
        const large = tool("debugfs", "-R", "stat /upper/app/data/large", volume)
        const block = /\(0-\d+\):(\d+)/u.exec(large)?.[1] ?? assert.fail(large)
        const script = path.join(path.dirname(volume), "commands")
        for (let number = 0; number < 40; number++) {
          const name = `/upper/app/data/many-${number}`
          // one extent of 32,768 blocks would be past the end: the longest that fits
          appendFileSync(
            script,
            [
              `sif ${name} flags 0x80000`,
              `sif ${name} block[0] 0x0001f30a`,
              `sif ${name} block[1] 4`,
              `sif ${name} block[2] 0`,
              `sif ${name} block[3] 0`,
              `sif ${name} block[4] 700`,
              `sif ${name} block[5] ${block}`,
              `sif ${name} size ${700 * 4096}`,
              ""
            ].join("\n")
          )
        }
        tool("debugfs", "-w", "-f", script, volume)
        const { socketPath } = yield* served(volume)
        assert.match(yield* fails(socketPath, yield* Program), /hold more than the volume has room for/u)
      }).pipe(Effect.scoped)
    )

    it.effect("ends in a bundle or in a sentence, wherever bytes of it are wrong", () =>
      Effect.gen(function* () {
        const program = yield* Program
        const { directory, volume } = yield* withVolume(["-O", "^metadata_csum"])
        const intact = readFileSync(volume)
        let state = Number(process.env.NIBRUNNER_FUZZ_SEED ?? 7)
        const next = (below: number) => {
          state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
          return Math.floor((state / 2 ** 32) * below)
        }
        // The superblock, the groups, the inodes and the directories lie in the first MiBs.
        for (let run = 0; run < Number(process.env.NIBRUNNER_FUZZ_RUNS ?? 12); run++) {
          const bytes = Buffer.from(intact)
          const count = 1 + next(400)
          for (let change = 0; change < count; change++) bytes[1024 + next(6 * 2 ** 20)] = next(256)
          const damaged = path.join(directory, `damaged-${run}`)
          writeFileSync(damaged, bytes)
          yield* Effect.gen(function* () {
            const { socketPath } = yield* served(damaged)
            const outcome = yield* Effect.result(
              bundleInto(directory, socketPath).pipe(Effect.provide(layerOf(program)))
            )
            if (outcome._tag === "Failure")
              assert.notMatch(outcome.failure.message, /was killed|without a word/u, `run ${run}`)
          }).pipe(Effect.scoped)
          tool("rm", damaged)
        }
      }).pipe(Effect.scoped)
    )

    it.effect("whose server answers with errors is no bundle, and half of one is none", () =>
      Effect.gen(function* () {
        const { directory, volume } = yield* withVolume()
        const mark = path.join(directory, "broken")
        const { socketPath } = yield* served(
          volume,
          ["error"],
          ["error=EIO", "error-rate=100%", `error-file=${mark}`]
        )
        writeFileSync(mark, "")
        assert.match(yield* fails(socketPath, yield* Program), /cannot be read at byte \d+ \(NBD error 5\)/u)
      }).pipe(Effect.scoped)
    )

    it.effect("that is not served is said to be not", () =>
      Effect.gen(function* () {
        const { volume } = yield* withVolume()
        const { socketPath } = yield* served(volume)
        tool("rm", socketPath)
        assert.match(yield* fails(socketPath, yield* Program), /cannot be reached: No such file/u)
      }).pipe(Effect.scoped)
    )

    it.effect.skipIf(!isRoot)("is read by nobody, who can neither gain rights nor open anything", () =>
      Effect.gen(function* () {
        const program = yield* Program
        const { directory, volume } = yield* withVolume()
        // slow enough to be looked at
        const { socketPath } = yield* served(volume, ["delay"], ["rdelay=200ms"])
        const reading = yield* Effect.forkScoped(
          bundleInto(directory, socketPath).pipe(Effect.provide(layerOf(program)))
        )
        const statusOf = (name: string) =>
          tool(
            "sh",
            "-c",
            `for p in $(pgrep -x ${name} -u 65534); do cat /proc/$p/status; readlink /proc/$p/exe; done; true`
          )
        let status = ""
        while (!/Seccomp:\s+2/u.test(status)) {
          assert.isUndefined(reading.pollUnsafe(), "it ended before it could be looked at")
          yield* Effect.sleep(20)
          status = statusOf("volume-bundle")
        }
        for (const line of [
          /Uid:\s+65534\s+65534\s+65534/u,
          /Gid:\s+65534/u,
          /Groups:\s*\n/u,
          /NoNewPrivs:\s+1/u
        ])
          assert.match(status, line)
        assert.match(status, /CapEff:\s+0+\n/u)
        assert.match(statusOf("pigz"), /Uid:\s+65534[\s\S]*NoNewPrivs:\s+1/u)
      }).pipe(Effect.scoped)
    )
  })
})
