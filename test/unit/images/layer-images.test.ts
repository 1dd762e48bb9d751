import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { looksLike } from "../../../layers/images/magic.ts"
import { layerSquashfsImages } from "../../../layers/images/squashfs.ts"
import { layerDirectoryStore } from "../../../layers/store/directory.ts"
import type { DesiredLayer } from "../../../src/document/schema.ts"
import { LayerImages } from "../../../src/services/LayerImages.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { recordedTools, type Tools } from "../../support/tools.ts"

const host = (tools: Tools = recordedTools()) =>
  Effect.gen(function* () {
    const root = yield* temporaryDirectory
    const storeDirectory = path.join(root, "store")
    const stateDir = path.join(root, "state")
    yield* Effect.promise(() => fs.mkdir(storeDirectory))
    const layer = layerSquashfsImages({ stateDir }).pipe(
      Layer.provide(layerDirectoryStore({ storeDirectory, stateDir })),
      Layer.provide(tools.layer)
    )
    const put = (objectKey: string, bytes: Uint8Array) =>
      Effect.promise(async () => {
        await fs.writeFile(path.join(storeDirectory, objectKey), bytes)
        return { objectKey, digest: createHash("sha256").update(bytes).digest("hex") }
      })
    const prepare = (wanted: DesiredLayer) =>
      LayerImages.use((images) => images.prepare(wanted)).pipe(Effect.provide(layer))
    return { root, stateDir, layer, put, prepare, tools }
  })

const program = Buffer.concat([Buffer.from([0x7f, 0x45, 0x4c, 0x46]), Buffer.alloc(200_000, 3)])

/** An image of some bytes with a magic in its place. */
const withMagic = (size: number, offset: number, magic: ReadonlyArray<number>): Buffer => {
  const bytes = Buffer.alloc(size)
  bytes.set(magic, offset)
  return bytes
}
const squashfs = (size: number) => withMagic(size, 0, [0x68, 0x73, 0x71, 0x73])
const ext4 = (size: number) => withMagic(size, 1080, [0x53, 0xef])

describe("a filesystem layer", () => {
  for (const [kind, image] of [
    ["squashfs", squashfs(4096)],
    ["ext4", ext4(65536)]
  ] as const) {
    it.live(`that is ${kind} is attached as it was uploaded, by no tool`, () =>
      Effect.gen(function* () {
        const { put, prepare, tools, stateDir } = yield* host()
        const object = yield* put("base", image)
        const file = yield* prepare({ kind: "filesystem", ...object })
        assert.strictEqual(file, path.join(stateDir, "artifacts", object.digest))
        assert.deepStrictEqual(tools.run, [])
      })
    )
  }

  it.live("is padded to whole sectors where its size is odd, so that a drive has all of it", () =>
    Effect.gen(function* () {
      const { put, prepare } = yield* host()
      const object = yield* put("base", squashfs(5001))
      const file = yield* prepare({ kind: "filesystem", ...object })
      assert.strictEqual(yield* prepare({ kind: "filesystem", ...object }), file)
      const padded = yield* Effect.promise(() => fs.readFile(file))
      assert.strictEqual(padded.length, 5120)
      assert.isTrue(padded.subarray(0, 5001).equals(squashfs(5001)))
    })
  )

  it.live("that is neither squashfs nor ext4 is refused by key and digest, with a guess at what it is", () =>
    Effect.gen(function* () {
      const { put, prepare } = yield* host()
      for (const [bytes, guess] of [
        [Buffer.from([0x1f, 0x8b, 8, 0]), ": it looks like a gzip archive"],
        [program, ": it looks like a program (a layer of kind executable?)"],
        [Buffer.alloc(0), ": it is empty"],
        [Buffer.alloc(4096, 1), ""],
        [squashfs(4096).subarray(0, 3), ""],
        [ext4(65536).subarray(0, 1081), ""]
      ] as const) {
        const object = yield* put("base", bytes)
        const error = yield* Effect.flip(prepare({ kind: "filesystem", ...object }))
        assert.strictEqual(
          error.message,
          `the filesystem layer "base" (sha-256 ${object.digest.slice(0, 12)}…) is neither a squashfs nor an ext4 image${guess}`
        )
      }
    })
  )

  it.live("that the store does not have is missing by name", () =>
    Effect.gen(function* () {
      const { prepare } = yield* host()
      const error = yield* Effect.flip(
        prepare({ kind: "filesystem", objectKey: "nowhere", digest: "0".repeat(64) })
      )
      assert.strictEqual(error._tag, "ObjectMissing")
    })
  )

  it("is guessed from its first bytes", () => {
    const tar = withMagic(512, 257, [...Buffer.from("ustar")])
    assert.strictEqual(looksLike(tar), "it looks like a tar archive")
    assert.strictEqual(looksLike(Buffer.from("PK\u0003\u0004")), "it looks like a zip archive")
    assert.strictEqual(looksLike(Buffer.from("hello")), undefined)
  })
})

describe("an executable layer", () => {
  it.live("is a squashfs with the one file: root's, 0755, and so are its parents", () =>
    Effect.gen(function* () {
      const { put, prepare } = yield* host()
      const object = yield* put("app", program)
      const image = yield* prepare({
        kind: "executable",
        ...object,
        destinationPath: "/opt/my app/-x/ünï/server"
      })
      const listing = execFileSync("unsquashfs", ["-UTC", "-lln", image], { encoding: "utf8" })
      assert.deepStrictEqual(
        listing
          .split("\n")
          .filter((line) => line.includes("squashfs-root"))
          // The size of a directory says nothing.
          .map((line) => line.replaceAll(/ +/gu, " ").replace(/^(d\S+ \S+) \d+/u, "$1")),
        [
          "drwxr-xr-x 0/0 1970-01-01 00:00 squashfs-root",
          "drwxr-xr-x 0/0 1970-01-01 00:00 squashfs-root/opt",
          "drwxr-xr-x 0/0 1970-01-01 00:00 squashfs-root/opt/my app",
          "drwxr-xr-x 0/0 1970-01-01 00:00 squashfs-root/opt/my app/-x",
          "drwxr-xr-x 0/0 1970-01-01 00:00 squashfs-root/opt/my app/-x/ünï",
          `-rwxr-xr-x 0/0 ${program.length} 1970-01-01 00:00 squashfs-root/opt/my app/-x/ünï/server`
        ]
      )
      const content = execFileSync("unsquashfs", ["-cat", image, "opt/my app/-x/ünï/server"], {
        maxBuffer: 2 ** 24
      })
      assert.isTrue(content.equals(program))
      const { size, mode } = yield* Effect.promise(() => fs.stat(image))
      assert.strictEqual(size % 512, 0)
      assert.strictEqual(mode & 0o777, 0o444)
    })
  )

  it.live("is the same bytes on every host, whatever its umask and its clock", () =>
    Effect.gen(function* () {
      const images: Array<Buffer> = []
      for (const umask of [0o022, 0o077]) {
        const { put, prepare } = yield* host()
        const object = yield* put("app", program)
        const former = process.umask(umask)
        const image = yield* prepare({ kind: "executable", ...object, destinationPath: "/usr/bin/app" }).pipe(
          Effect.ensuring(Effect.sync(() => process.umask(former)))
        )
        images.push(yield* Effect.promise(() => fs.readFile(image)))
      }
      assert.isTrue(images[0]?.equals(images[1] ?? Buffer.alloc(0)))
    })
  )

  it.live("is made once per program and place, however many ask at once, and not again after a restart", () =>
    Effect.gen(function* () {
      const { put, tools, layer } = yield* host()
      const object = yield* put("app", program)
      const at = (destinationPath: string) =>
        LayerImages.use((images) => images.prepare({ kind: "executable", ...object, destinationPath }))
      const paths = yield* Effect.all(
        Array.from({ length: 10 }, () => at("/app")),
        { concurrency: "unbounded" }
      ).pipe(Effect.provide(layer))
      assert.strictEqual(new Set(paths).size, 1)
      assert.deepStrictEqual(tools.run, ["mksquashfs"])
      assert.strictEqual(yield* at("/app").pipe(Effect.provide(layer)), paths[0])
      assert.deepStrictEqual(tools.run, ["mksquashfs"])
      assert.notStrictEqual(yield* at("/other").pipe(Effect.provide(layer)), paths[0])
    })
  )

  it.live("with a name that no filesystem takes is refused by its path", () =>
    Effect.gen(function* () {
      const { put, prepare, stateDir } = yield* host()
      const object = yield* put("app", program)
      for (const destinationPath of [`/bin/${"x".repeat(256)}`, `/${"é".repeat(200)}/app`]) {
        const error = yield* Effect.flip(prepare({ kind: "executable", ...object, destinationPath }))
        assert.include(error.message, `the path ${destinationPath} is too long`)
      }
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(path.join(stateDir, "layers"))), [])
    })
  )

  it.live("is refused with the tool's last word where the tool fails, and leaves nothing", () =>
    Effect.gen(function* () {
      const tools = recordedTools(() => [
        "sh",
        "-c",
        "echo first >&2; printf 'FATAL ERROR: no room\n\n' >&2; exit 3"
      ])
      const { put, prepare, stateDir } = yield* host(tools)
      const object = yield* put("app", program)
      const error = yield* Effect.flip(prepare({ kind: "executable", ...object, destinationPath: "/app" }))
      assert.include(
        error.message,
        "cannot be made into an image: mksquashfs failed (exit code 3): FATAL ERROR: no room"
      )
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(path.join(stateDir, "layers"))), [])
    })
  )

  it.live("clears away what a killed daemon had half made", () =>
    Effect.gen(function* () {
      const { put, prepare, stateDir } = yield* host()
      const leftover = path.join(stateDir, "layers", ".packing-0123", "root")
      yield* Effect.promise(() => fs.mkdir(leftover, { recursive: true }))
      const object = yield* put("app", program)
      const image = yield* prepare({ kind: "executable", ...object, destinationPath: "/app" })
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(path.join(stateDir, "layers"))), [
        path.basename(image)
      ])
    })
  )
})
