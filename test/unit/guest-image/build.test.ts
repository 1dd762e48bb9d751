import { spawnSync } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { gzipSync, zstdCompressSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { characterDevice, directory, file, newcArchive } from "../../../guest/image/cpio.ts"
import { moduleDependencies, unpackKernel } from "../../../guest/image/kernel.ts"
import { orderedModules } from "../../../guest/image/modules.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

/** A bzImage with this payload: one setup sector, then the protected-mode part. */
const bzImage = (payload: Uint8Array, unpackedSize: number): Buffer => {
  const image = Buffer.alloc(1024 + 100 + payload.length + 4)
  image.writeUInt8(1, 0x1f1)
  image.write("HdrS", 0x202)
  image.writeUInt32LE(100, 0x248)
  image.writeUInt32LE(payload.length + 4, 0x24c)
  image.set(payload, 1024 + 100)
  image.writeUInt32LE(unpackedSize, 1024 + 100 + payload.length)
  return image
}

const elf = Buffer.concat([Buffer.from("\x7fELF"), Buffer.from("abc".repeat(20)), Buffer.from("end")])

/** One LZ4 block: 7 literals, a copy of 57 bytes from 3 back (longer than its distance), 3 literals. */
const lz4Block = Buffer.concat([
  Buffer.from([0x7f]),
  elf.subarray(0, 7),
  Buffer.from([3, 0, 57 - 4 - 15]),
  Buffer.from([0x30]),
  Buffer.from("end")
])
const lz4 = (block: Uint8Array) => {
  const head = Buffer.alloc(8)
  head.writeUInt32LE(0x184c2102, 0)
  head.writeUInt32LE(block.length, 4)
  return Buffer.concat([head, block])
}

describe("the kernel", () => {
  for (const [name, payload] of [
    ["LZ4", lz4(lz4Block)],
    ["gzip", gzipSync(elf)],
    ["zstd", zstdCompressSync(elf)]
  ] as const) {
    it(`is found in a bzImage that is packed with ${name}`, () => {
      assert.strictEqual(
        Buffer.from(unpackKernel(bzImage(payload, elf.length))).toString("latin1"),
        elf.toString("latin1")
      )
    })
  }

  it("is refused when it is no bzImage, packed in an unknown way, cut short, or no ELF file", () => {
    assert.throws(() => unpackKernel(Buffer.alloc(4096)), "is no bzImage")
    assert.throws(
      () => unpackKernel(bzImage(Buffer.from("BZh9...."), 1)),
      "packed in a way that is not known"
    )
    assert.throws(
      () => unpackKernel(bzImage(lz4(lz4Block.subarray(0, 9)), elf.length)),
      /cut short|unpacks to/u
    )
    assert.throws(() => unpackKernel(bzImage(gzipSync("no ELF"), 6)), "no ELF file")
  })
})

describe("modules", () => {
  const module = (depends: string) => Buffer.from(`ELF…\0license=GPL\0depends=${depends}\0name=x\0`, "latin1")

  it("say what they depend on", () => {
    assert.deepStrictEqual(moduleDependencies(module("virtio,virtio_ring")), ["virtio", "virtio_ring"])
    assert.deepStrictEqual(moduleDependencies(module("")), [])
  })

  it.live("stand after what they depend on, once, and without what the kernel has built in", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryDirectory
      const depends: Readonly<Record<string, string>> = {
        virtio: "virtio_ring",
        virtio_ring: "",
        virtio_mmio: "virtio,virtio_ring",
        virtio_console: "virtio,virtio_ring",
        virtio_blk: "virtio,virtio_ring",
        net_failover: "failover",
        failover: "",
        virtio_net: "net_failover,virtio,virtio_ring",
        squashfs: "",
        "virtio-rng": "virtio,virtio_ring"
      }
      yield* Effect.promise(async () => {
        for (const [name, list] of Object.entries(depends)) {
          await fs.writeFile(path.join(folder, `${name}.ko`), module(list))
        }
      })
      const paths = Object.keys(depends).map((name) => path.join(folder, `${name}.ko`))
      const names = orderedModules(paths, ["kernel/fs/overlayfs/overlay.ko"]).map(({ name }) => name)
      assert.deepStrictEqual(names, [
        ...["virtio_ring", "virtio", "virtio_mmio", "virtio_console", "virtio_blk"],
        ...["failover", "net_failover", "virtio_net", "squashfs", "virtio_rng"]
      ])
      assert.throws(() => orderedModules(paths, []), "the kernel has no module overlay")
    })
  )
})

describe("the initramfs", () => {
  const entries = [
    directory("dev"),
    characterDevice("dev/console", 0o600, 5, 1),
    file("init", 0o755, Buffer.from("#!"))
  ]

  it("is the same bytes for the same entries, in whole words", () => {
    assert.deepStrictEqual(newcArchive(entries), newcArchive(entries))
    assert.strictEqual(newcArchive(entries).length % 4, 0)
  })

  it("is an archive as cpio reads it", () => {
    const { stdout, status } = spawnSync("cpio", ["-tv", "--quiet"], {
      input: newcArchive(entries),
      encoding: "utf8"
    })
    assert.strictEqual(status, 0)
    const lines = stdout.trim().split("\n")
    assert.match(lines[0] ?? "", /^drwxr-xr-x.* dev$/u)
    assert.match(lines[1] ?? "", /^crw-------.* 5, +1 .* dev\/console$/u)
    assert.match(lines[2] ?? "", /^-rwxr-xr-x.* 2 .* init$/u)
  })
})
