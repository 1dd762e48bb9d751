/** Images of layers: a filesystem as it was uploaded, a program packed into a squashfs. */
import { createHash, randomBytes } from "node:crypto"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect, Layer } from "effect"
import { ChildProcessSpawner } from "effect/process"
import type { DesiredLayer } from "../../src/document/schema.ts"
import { ArtifactStore, type ArtifactStoreError } from "../../src/services/ArtifactStore.ts"
import { LayerImages, LayerUnusable } from "../../src/services/LayerImages.ts"
import { commitFile, fileSize, makeDirectory, openFile, removeLeftovers } from "../files/durable.ts"
import { type FileProblem, onFile } from "../files/problem.ts"
import { makeSharedWork } from "../files/shared-work.ts"
import { runTool, type ToolFailed } from "../files/tool.ts"
import { isFilesystem, looksLike, MAGIC_BYTES } from "./magic.ts"

const HALF_MADE = ".packing-"
/** What a virtual drive counts in. Bytes. */
const SECTOR = 512

type ExecutableLayer = Extract<DesiredLayer, { readonly kind: "executable" }>

export interface SquashfsImagesOptions {
  /** Absolute; images that are made here are in `layers/` in it. */
  readonly stateDir: string
}

/** Fails when the directory cannot be made. */
export const layerSquashfsImages = (options: SquashfsImagesOptions) =>
  Layer.effect(
    LayerImages,
    Effect.gen(function* () {
      const store = yield* ArtifactStore
      const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
      const directory = path.join(options.stateDir, "layers")
      yield* makeDirectory(directory, 0o700)
      yield* removeLeftovers(directory, HALF_MADE)
      const shared = yield* makeSharedWork<string, ArtifactStoreError | LayerUnusable>()

      /** Runs `make` with the path of an empty directory, then gives the file `image` in it the name of the image. */
      const makeOnce = <E, R>(image: string, make: (workspace: string) => Effect.Effect<void, E, R>) =>
        Effect.gen(function* () {
          if ((yield* fileSize(image)) !== undefined) return image
          const workspace = path.join(directory, HALF_MADE + randomBytes(8).toString("hex"))
          yield* Effect.acquireUseRelease(
            onFile(directory, () => fs.mkdir(workspace, { mode: 0o700 })),
            () =>
              make(workspace).pipe(
                Effect.andThen(flush(path.join(workspace, "image"))),
                Effect.andThen(commitFile(path.join(workspace, "image"), image))
              ),
            () => Effect.ignore(onFile(workspace, () => fs.rm(workspace, { recursive: true, force: true })))
          )
          return image
        })

      const filesystem = (layer: DesiredLayer) =>
        Effect.gen(function* () {
          const object = yield* store.fetch(layer)
          const { head, size } = yield* readHead(object)
          if (!isFilesystem(head)) {
            const guess = looksLike(head)
            return yield* unusable(
              layer,
              `is neither a squashfs nor an ext4 image${guess === undefined ? "" : `: ${guess}`}`
            )
          }
          if (size % SECTOR === 0) return object
          return yield* makeOnce(path.join(directory, `${layer.digest}.img`), (workspace) =>
            padToSector(object, path.join(workspace, "image"), size)
          )
        })

      const executable = (layer: ExecutableLayer) =>
        Effect.gen(function* () {
          const place = createHash("sha256").update(layer.destinationPath).digest("hex").slice(0, 32)
          return yield* makeOnce(path.join(directory, `${layer.digest}-${place}.squashfs`), (workspace) =>
            Effect.flatMap(store.fetch(layer), (object) =>
              pack(object, layer.destinationPath, workspace)
            ).pipe(Effect.provideService(ChildProcessSpawner.ChildProcessSpawner, spawner))
          )
        })

      return {
        prepare: (layer) =>
          layer.kind === "filesystem"
            ? filesystem(layer).pipe(asUnusable(layer))
            : shared(
                `${layer.digest} ${layer.objectKey} ${layer.destinationPath}`,
                executable(layer).pipe(asUnusable(layer))
              )
      }
    })
  )

const readHead = (file: string) =>
  Effect.gen(function* () {
    const handle = yield* openFile(file, constants.O_RDONLY)
    const head = Buffer.alloc(MAGIC_BYTES)
    const { bytesRead } = yield* onFile(file, () => handle.read(head, 0, MAGIC_BYTES, 0))
    const { size } = yield* onFile(file, () => handle.stat())
    return { head: head.subarray(0, bytesRead), size }
  }).pipe(Effect.scoped)

/** Firecracker drops the last sector of a drive when it is not whole, and with it the end of the image. */
const padToSector = (object: string, image: string, size: number) =>
  onFile(image, () => fs.copyFile(object, image, constants.COPYFILE_FICLONE)).pipe(
    Effect.andThen(onFile(image, () => fs.chmod(image, 0o600))),
    Effect.andThen(onFile(image, () => fs.truncate(image, Math.ceil(size / SECTOR) * SECTOR)))
  )

/** A squashfs with the one file in it. Owners, times and modes are fixed, so the same file gives the same bytes. */
const pack = (object: string, destinationPath: string, workspace: string) =>
  Effect.gen(function* () {
    const root = path.join(workspace, "root")
    const parts = destinationPath.split("/").filter((part) => part !== "")
    let place = root
    for (const part of ["", ...parts.slice(0, -1)]) {
      place = path.join(place, part)
      yield* makeRootDirectory(place, destinationPath)
    }
    const file = path.join(place, parts.at(-1) ?? "")
    yield* onFile(destinationPath, () => fs.copyFile(object, file, constants.COPYFILE_FICLONE))
    yield* onFile(destinationPath, () => fs.chmod(file, 0o755))
    yield* runTool("mksquashfs", [root, path.join(workspace, "image"), ...SQUASHFS])
  })

const makeRootDirectory = (directory: string, name: string) =>
  onFile(name, () => fs.mkdir(directory)).pipe(
    // Whatever the daemon's umask says.
    Effect.andThen(onFile(name, () => fs.chmod(directory, 0o755)))
  )

/** Not compressed: it is packed as fast as a copy, and a guest reads it without work. */
const SQUASHFS = [
  ...["-noappend", "-no-progress", "-quiet", "-reproducible"],
  ...["-all-root", "-no-xattrs", "-no-exports", "-mkfs-time", "0", "-all-time", "0"],
  ...["-noI", "-noId", "-noD", "-noF", "-noX", "-no-fragments", "-b", "131072"]
]

const flush = (file: string) =>
  openFile(file, constants.O_RDONLY).pipe(
    Effect.flatMap((handle) =>
      onFile(file, () => handle.chmod(0o444)).pipe(Effect.andThen(onFile(file, () => handle.sync())))
    ),
    Effect.scoped
  )

const unusable = ({ kind, digest, objectKey }: DesiredLayer, reason: string) =>
  new LayerUnusable({ kind, digest, objectKey, reason })

const asUnusable =
  (layer: DesiredLayer) =>
  <R>(effect: Effect.Effect<string, ArtifactStoreError | LayerUnusable | FileProblem | ToolFailed, R>) =>
    Effect.catchTags(effect, {
      FileProblem: (problem) =>
        Effect.fail(unusable(layer, `cannot be made into an image: ${problem.reason}`)),
      ToolFailed: (problem) =>
        Effect.fail(unusable(layer, `cannot be made into an image: ${problem.message}`))
    })
