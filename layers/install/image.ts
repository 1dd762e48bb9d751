/** The guest image of a host: looked at, and copied in from where it was built. */
import * as fs from "node:fs/promises"
import { basename, join } from "node:path"
import { Effect, Schema } from "effect"
import { GuestImage, type GuestImageUnusable } from "../../src/services/GuestImage.ts"
import { commitFile, syncDirectory } from "../files/durable.ts"
import { type FileProblem, ifPresent, onFile } from "../files/problem.ts"
import { layerVerifiedGuestImage } from "../guest-image/verified.ts"
import { type Place, placed } from "./place.ts"
import type { Changes } from "./say.ts"

/** The image in a directory, when every file of it is what its manifest says. */
export const verifiedImage = (directory: string): Effect.Effect<GuestImage["Service"], GuestImageUnusable> =>
  Effect.provide(GuestImage, layerVerifiedGuestImage(directory))

const manifestOf = (directory: string): Effect.Effect<string | undefined, FileProblem> => {
  const path = join(directory, "manifest.json")
  return ifPresent(onFile(path, () => fs.readFile(path, "utf8")))
}

const Named = Schema.Struct({ name: Schema.String })

/** The names of all that a manifest vouches for. */
const filesOf = (manifest: string | undefined): ReadonlyArray<string> =>
  Object.values(JSON.parse(manifest ?? "{}"))
    .filter(Schema.is(Named))
    .map(({ name }) => name)

const EXECUTABLE = 0o111

/** Copies a file whole, under a name that nothing looks for, and onto the disk. */
const stage = (source: string, staged: string): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    const { mode } = yield* onFile(source, () => fs.stat(source))
    yield* onFile(staged, () => fs.copyFile(source, staged))
    const handle = yield* Effect.acquireRelease(
      onFile(staged, () => fs.open(staged, "r+")),
      (open) => Effect.ignore(onFile(staged, () => open.close()))
    )
    yield* onFile(staged, () => handle.chmod((mode & EXECUTABLE) === 0 ? 0o644 : 0o755))
    yield* onFile(staged, () => handle.sync())
  }).pipe(Effect.scoped)

/**
 * Copies the image of `from`, which is verified, into the host's directory, unless it is there already. The manifest comes
 * last: a host on which this broke off has an image that is refused, and the next call mends it.
 */
export const copyImage = Effect.fnUntraced(function* (
  place: Place,
  from: string,
  directory: string,
  changes: Changes
) {
  const target = placed(place, directory)
  const image = yield* verifiedImage(from)
  const present = yield* Effect.option(verifiedImage(target))
  const same = (yield* manifestOf(from)) === (yield* manifestOf(target))
  if (present._tag === "Some" && same) return image.version
  const files = [...filesOf(yield* manifestOf(from)), "manifest.json"].map((name) => join(from, name))
  const staged = files.map((file) => ({
    file,
    temporary: join(target, `.${basename(file)}.new`),
    final: join(target, basename(file))
  }))
  yield* Effect.gen(function* () {
    for (const { file, temporary } of staged) yield* stage(file, temporary)
    for (const { final, temporary } of staged) yield* commitFile(temporary, final)
    yield* syncDirectory(target)
  }).pipe(
    Effect.onError(() =>
      Effect.forEach(
        staged,
        ({ temporary }) => Effect.ignore(onFile(temporary, () => fs.rm(temporary, { force: true }))),
        {
          discard: true
        }
      )
    )
  )
  yield* verifiedImage(target)
  yield* changes.made(
    present._tag === "Some"
      ? `replaced the guest image ${present.value.version} in ${directory} by ${image.version}`
      : `laid the guest image ${image.version} down in ${directory}`
  )
  return image.version
})
