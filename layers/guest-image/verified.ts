/** The guest image in a directory, used only when every file is what the manifest says. */
import { createHash } from "node:crypto"
import { createReadStream } from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { pipeline } from "node:stream/promises"
import { Effect, Layer, Schema } from "effect"
import {
  GuestImage,
  type GuestImageFile,
  GuestImageManifest,
  GuestImageUnusable
} from "../../src/services/GuestImage.ts"

const unusable = (path: string) => (cause: unknown) => {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined
  const reason =
    code === "ENOENT"
      ? "is absent: build it with `npm run image`"
      : `cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`
  return new GuestImageUnusable({ path, reason })
}

const readManifest = Effect.fnUntraced(function* (directory: string) {
  const path = join(directory, "manifest.json")
  const text = yield* Effect.tryPromise({ try: () => readFile(path, "utf8"), catch: unusable(path) })
  return yield* Schema.decodeUnknownEffect(Schema.fromJsonString(GuestImageManifest))(text).pipe(
    Effect.mapError(
      (error) => new GuestImageUnusable({ path, reason: `is not a manifest: ${error.message}` })
    )
  )
})

const sha256 = (path: string) =>
  Effect.tryPromise({
    try: async () => {
      const hash = createHash("sha256")
      await pipeline(createReadStream(path), hash)
      return hash.digest("hex")
    },
    catch: unusable(path)
  })

/** The path of a file whose bytes are what the manifest says. */
const verified = Effect.fnUntraced(function* (directory: string, file: typeof GuestImageFile.Type) {
  // A manifest names files beside itself, never elsewhere.
  const path = join(directory, file.name)
  if (file.name.includes("/"))
    return yield* new GuestImageUnusable({ path, reason: "is named with a path in manifest.json" })
  const actual = yield* sha256(path)
  return actual === file.sha256
    ? path
    : yield* new GuestImageUnusable({
        path,
        reason: `has sha-256 ${actual}, but manifest.json says ${file.sha256}`
      })
})

/** @param directory absolute; `paths.guest_image_dir` of the configuration */
export const layerVerifiedGuestImage = (directory: string): Layer.Layer<GuestImage, GuestImageUnusable> =>
  Layer.effect(
    GuestImage,
    Effect.gen(function* () {
      const manifest = yield* readManifest(directory)
      const files = yield* Effect.all(
        {
          kernel: verified(directory, manifest.kernel),
          initramfs: verified(directory, manifest.initramfs),
          base: verified(directory, manifest.base),
          tscProbe: verified(directory, manifest.tscProbe),
          jail: verified(directory, manifest.jail),
          nbdRelay: verified(directory, manifest.nbdRelay),
          volumeBundle: verified(directory, manifest.volumeBundle)
        },
        { concurrency: 2 }
      )
      return { version: manifest.version, ...files }
    })
  )
