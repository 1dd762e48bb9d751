import {
  closeSync,
  existsSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import {
  commitPending,
  discardSnapshot,
  makePending,
  parseRecord,
  pendingDirectory,
  putBack,
  recordText,
  type StoredRecord,
  snapshotFiles,
  sweepSnapshots,
  useUp,
  writePart
} from "../../../layers/hypervisor/qemu/snapshot/files.ts"
import {
  type Extents,
  makeMemoryWriter,
  verifyMemory
} from "../../../layers/hypervisor/qemu/snapshot/memory.ts"
import { PAGE_BYTES } from "../../../layers/hypervisor/qemu/snapshot/migration-stream.ts"
import { fakeMachineSpec } from "../../../layers/testing/FakeHost.ts"
import { snapshotMismatch } from "../../../src/services/snapshot.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const record: StoredRecord = {
  spec: fakeMachineSpec("web", 3, "00c0ffee00c0ffee"),
  deploymentId: "dep-1",
  takenAt: 1_767_225_600_123,
  hypervisor: "qemu 7.2.22 (TCG), TSC of 2596 MHz",
  storedBytes: 12_345,
  files: {
    memory: { bytes: 4096, stored: 4096 },
    sums: { bytes: 4, crc32: 1 },
    state: { bytes: 9, crc32: 2 }
  }
}
const bytes = new TextEncoder().encode(recordText(record))

describe("a snapshot's record", () => {
  it("is read as it was written", () => {
    assert.deepStrictEqual(parseRecord(bytes), record)
  })

  it("is none when any bit of it has changed, or when it was cut short", () => {
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const changed = Uint8Array.from(bytes)
      changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7))
      assert.isUndefined(parseRecord(changed), `bit ${bit}`)
    }
    for (let length = 0; length < bytes.length; length++) {
      assert.isUndefined(parseRecord(bytes.subarray(0, length)), `${length} bytes`)
    }
  })

  it("names the first thing that differs from what is to be woken", () => {
    const wanted = { spec: record.spec, deploymentId: "dep-1", hypervisor: record.hypervisor }
    const link = { ...record.spec.link, ports: [3001] }
    assert.isUndefined(snapshotMismatch(record, wanted))
    assert.isUndefined(
      snapshotMismatch(record, { ...wanted, spec: { ...record.spec, machineId: "another" } })
    )
    assert.strictEqual(
      snapshotMismatch(record, { ...wanted, deploymentId: "dep-2" }),
      "it was made under deployment dep-1, and this is dep-2"
    )
    assert.include(
      snapshotMismatch(record, { ...wanted, hypervisor: "qemu 9" }),
      "hypervisor qemu 7.2.22 (TCG)"
    )
    assert.include(snapshotMismatch(record, { ...wanted, spec: { ...record.spec, layers: ["x"] } }), "layers")
    assert.include(snapshotMismatch(record, { ...wanted, spec: { ...record.spec, link } }), "network")
    assert.include(snapshotMismatch(record, { ...wanted, spec: { ...record.spec, vcpuCount: 9 } }), "CPUs")
  })
})

const PAGES = 600

/** Writes pages, of which 0 stands for zeros, in the order given. */
const write = (path: string, pages: ReadonlyArray<readonly [page: number, fill: number]>) =>
  Effect.callback<Extents, Error>((resume) => {
    const fd = openSync(path, "w+")
    ftruncateSync(fd, PAGES * PAGE_BYTES)
    const writer = makeMemoryWriter(fd, PAGES * PAGE_BYTES, () => undefined)
    for (const [page, fill] of pages) {
      if (fill === 0) writer.zeroPage(page * PAGE_BYTES)
      else writer.page(page * PAGE_BYTES, Buffer.alloc(PAGE_BYTES + 7, fill), 7)
    }
    writer.finish((error) => {
      fsyncSync(fd)
      closeSync(fd)
      resume(error === undefined ? Effect.succeed(writer.extents()) : Effect.fail(error))
    })
  })

/** What the file was found to be. */
const shapeOf = (path: string) => ({ bytes: PAGES * PAGE_BYTES, stored: statSync(path).blocks * 512 })

const flip = (path: string, bit: number) => {
  const file = openSync(path, "r+")
  const byte = Buffer.alloc(1)
  readSync(file, byte, 0, 1, bit >> 3)
  byte[0] = (byte[0] ?? 0) ^ (1 << (bit & 7))
  writeSync(file, byte, 0, 1, bit >> 3)
  fsyncSync(file)
  closeSync(file)
}

describe("the memory file of a snapshot", () => {
  it.effect("holds what was written last of each page, in whatever order the pages came", () =>
    Effect.gen(function* () {
      const path = join(yield* temporaryDirectory, "memory")
      const pages = fc.sample(fc.tuple(fc.nat(PAGES - 1), fc.nat(3)), 2_000)
      const extents = yield* write(path, pages)
      const last = new Map(pages)
      const content = readFileSync(path)
      for (let page = 0; page < PAGES; page++) {
        const fill = last.get(page) ?? 0
        assert.isTrue(
          content.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES).equals(Buffer.alloc(PAGE_BYTES, fill)),
          `page ${page}`
        )
      }
      assert.isUndefined(yield* verifyMemory(path, extents, shapeOf(path)))
      // where the disk says otherwise all of it is read
      assert.isUndefined(yield* verifyMemory(path, extents, { ...shapeOf(path), stored: 0 }))
    })
  )

  const sparse = (page: number) => (page < 100 ? page % 3 : page < 400 ? 0 : 1)
  const written = Effect.gen(function* () {
    const path = join(yield* temporaryDirectory, "memory")
    const extents = yield* write(
      path,
      Array.from({ length: PAGES }, (_, page) => [page, sparse(page)] as const)
    )
    return { path, extents, shape: shapeOf(path) }
  })

  it.effect(
    "is not as it was when one bit of it has changed, in a page that holds something or in a hole",
    () =>
      Effect.gen(function* () {
        const { path, extents, shape } = yield* written
        assert.isBelow(shape.stored, PAGES * PAGE_BYTES)
        assert.isUndefined(yield* verifyMemory(path, extents, shape))
        for (const bit of [...fc.sample(fc.nat(shape.bytes * 8 - 1), 60), 250 * PAGE_BYTES * 8]) {
          flip(path, bit)
          const page = Math.floor(bit / 8 / PAGE_BYTES)
          const damage = yield* verifyMemory(path, extents, shape)
          const [, pages, first] = damage?.match(/changed in its (\d+) pages from (\d+) on$/u) ?? []
          assert.isAtLeast(page, Number(first), `bit ${bit}: ${damage}`)
          assert.isBelow(page, Number(first) + Number(pages), `bit ${bit}: ${damage}`)
          flip(path, bit)
        }
        // a hole that was written to is none any more, with whatever it was written: what counts is what is read
        assert.isUndefined(yield* verifyMemory(path, extents, shape))
        truncateSync(path, shape.bytes - 1)
        assert.include(yield* verifyMemory(path, extents, shape), `${shape.bytes - 1} bytes instead of`)
      })
  )

  it.effect("is refused with checksums that are not of a memory", () =>
    Effect.gen(function* () {
      const { path, shape } = yield* written
      for (const nonsense of [[1], [0, 0, 1], [0, 257, 1], [0, 2, 1, 1, 2, 1], [PAGES - 1, 2, 1]]) {
        assert.match(
          (yield* verifyMemory(path, Uint32Array.from(nonsense), shape)) ?? "",
          /checksums are not those of a memory/u
        )
      }
    })
  )
})

const exists = (directory: string) => existsSync(snapshotFiles(directory).record)

describe("the directory of a snapshot", () => {
  const made = (directory: string) =>
    Effect.gen(function* () {
      const files = yield* makePending(directory)
      yield* writePart(files.memory, new Uint8Array(10))
      yield* writePart(files.record, bytes)
    })

  it.effect("is there whole once it is committed, for its owner alone, and not before", () =>
    Effect.gen(function* () {
      const directory = join(yield* temporaryDirectory, "snapshots", "web")
      yield* made(directory)
      assert.isFalse(existsSync(directory))
      yield* commitPending(directory)
      assert.isTrue(exists(directory))
      assert.isFalse(existsSync(pendingDirectory(directory)))
      assert.strictEqual(statSync(directory).mode & 0o777, 0o700)
      assert.strictEqual(statSync(snapshotFiles(directory).memory).mode & 0o777, 0o600)
    })
  )

  it.effect("is none while it is being used, and one again when nothing has run from it", () =>
    Effect.gen(function* () {
      const directory = join(yield* temporaryDirectory, "web")
      yield* made(directory)
      yield* commitPending(directory)
      const files = snapshotFiles(directory)
      yield* useUp(files)
      assert.isFalse(exists(directory))
      yield* putBack(files)
      assert.isTrue(exists(directory))
      yield* putBack(files)
    })
  )

  it.effect("goes whole, half-written ones too, and may be gone already", () =>
    Effect.gen(function* () {
      const root = yield* temporaryDirectory
      const directory = join(root, "web")
      yield* made(directory)
      yield* commitPending(directory)
      yield* made(directory)
      yield* discardSnapshot(directory)
      assert.deepStrictEqual(readdirSync(root), [])
      yield* discardSnapshot(directory)
    })
  )

  it.effect("takes the place of nothing that is no snapshot, and no discard removes such a thing", () =>
    Effect.gen(function* () {
      const root = yield* temporaryDirectory
      const photos = join(root, "photos")
      mkdirSync(photos)
      writeFileSync(join(photos, "cat.jpg"), "a cat")
      yield* made(photos)
      assert.strictEqual((yield* Effect.flip(commitPending(photos))).code, "ENOTEMPTY")
      yield* discardSnapshot(photos)
      assert.deepStrictEqual(readdirSync(root), ["photos"])
      assert.deepStrictEqual(readdirSync(photos), ["cat.jpg"])
    })
  )

  it.effect("is swept unless it is of an app that is kept; what is no snapshot stays", () =>
    Effect.gen(function* () {
      const root = yield* temporaryDirectory
      for (const name of ["web", "shop"]) {
        yield* made(join(root, name))
        yield* commitPending(join(root, name))
      }
      yield* made(join(root, "news"))
      yield* useUp(snapshotFiles(join(root, "shop")))
      mkdirSync(join(root, "empty"))
      writeFileSync(join(root, "file"), "")
      mkdirSync(join(root, "photos"))
      writeFileSync(join(root, "photos/cat.jpg"), "a cat")
      const swept = yield* sweepSnapshots(root, ["web", "shop", "empty"])
      assert.deepStrictEqual([...swept].sort(), ["news", "shop"])
      assert.deepStrictEqual(readdirSync(root).sort(), ["empty", "file", "photos", "web"])
      assert.deepStrictEqual(yield* sweepSnapshots(join(root, "nowhere"), []), [])
    })
  )
})
