import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { layerVerifiedGuestImage } from "../../../layers/guest-image/verified.ts"
import { GuestImage } from "../../../src/services/GuestImage.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const files = {
  kernel: "vmlinux",
  initramfs: "initramfs",
  base: "base.squashfs",
  tscProbe: "tsc-khz",
  jail: "jail",
  nbdRelay: "nbd-relay",
  volumeBundle: "volume-bundle"
} as const

const described = (name: string) => {
  const bytes = `the bytes of ${name}`
  return { name, sha256: createHash("sha256").update(bytes).digest("hex"), bytes: bytes.length }
}

const manifest = {
  version: "0123456789abcdef",
  kernelVersion: "6.1.0",
  debianVersion: "12.11",
  kernel: described(files.kernel),
  initramfs: described(files.initramfs),
  base: described(files.base),
  tscProbe: described(files.tscProbe),
  jail: described(files.jail),
  nbdRelay: described(files.nbdRelay),
  volumeBundle: described(files.volumeBundle)
}

/** A whole image, and a way to spoil it. */
const imageIn = (directory: string, given: unknown = manifest) =>
  Effect.promise(async () => {
    for (const name of Object.values(files)) {
      await fs.writeFile(path.join(directory, name), `the bytes of ${name}`)
    }
    await fs.writeFile(path.join(directory, "manifest.json"), JSON.stringify(given))
  })

const open = (directory: string) => GuestImage.pipe(Effect.provide(layerVerifiedGuestImage(directory)))
const refusal = (directory: string) => Effect.map(Effect.flip(open(directory)), (error) => error.message)

describe("the guest image", () => {
  it.live("that is what its manifest says is used, under absolute paths", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* imageIn(directory)
      assert.deepStrictEqual(yield* open(directory), {
        version: manifest.version,
        kernel: path.join(directory, "vmlinux"),
        initramfs: path.join(directory, "initramfs"),
        base: path.join(directory, "base.squashfs"),
        tscProbe: path.join(directory, "tsc-khz"),
        jail: path.join(directory, "jail"),
        nbdRelay: path.join(directory, "nbd-relay"),
        volumeBundle: path.join(directory, "volume-bundle")
      })
    })
  )

  for (const name of Object.values(files)) {
    it.live(`whose ${name} has changed by one byte is refused, naming it and both digests`, () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* imageIn(directory)
        const changed = `The bytes of ${name}`
        yield* Effect.promise(() => fs.writeFile(path.join(directory, name), changed))
        const message = yield* refusal(directory)
        assert.include(message, path.join(directory, name))
        assert.include(message, described(name).sha256)
        assert.include(message, createHash("sha256").update(changed).digest("hex"))
      })
    )

    it.live(`whose ${name} is absent is refused, naming it`, () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* imageIn(directory)
        yield* Effect.promise(() => fs.rm(path.join(directory, name)))
        assert.include(yield* refusal(directory), `${path.join(directory, name)} is absent`)
      })
    )
  }

  it.live("that was never built is refused, saying how to build it", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const message = yield* refusal(path.join(directory, "guest"))
      assert.include(message, path.join(directory, "guest", "manifest.json"))
      assert.include(message, "npm run image")
    })
  )

  for (const [what, text] of [
    ["is no JSON", "{"],
    ["lacks a file", JSON.stringify({ ...manifest, base: undefined })],
    ["is of another kind", "[]"]
  ] as const) {
    it.live(`whose manifest ${what} is refused, naming the manifest`, () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* imageIn(directory)
        yield* Effect.promise(() => fs.writeFile(path.join(directory, "manifest.json"), text))
        assert.include(
          yield* refusal(directory),
          `${path.join(directory, "manifest.json")} is not a manifest`
        )
      })
    )
  }

  for (const name of ["../vmlinux", "/etc/hostname", "sub/vmlinux", "..", "."]) {
    it.live(`whose manifest names the file ${name} is refused: an image is one folder`, () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* imageIn(directory, { ...manifest, kernel: { ...manifest.kernel, name } })
        yield* refusal(directory)
      })
    )
  }
})
