/** Volumes that tests make, an NBD server that is not ours, and the program that writes bundles, compiled. */
import { execFileSync, spawn } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, truncateSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Stream } from "effect"
import { layerBundleProgram } from "../../../layers/export/program.ts"
import { type BundleOptions, BundleWriter } from "../../../src/services/BundleWriter.ts"
import { GuestImage } from "../../../src/services/GuestImage.ts"
import { temporaryDirectory } from "../temporary.ts"

export const tool = (name: string, ...args: ReadonlyArray<string>): string =>
  execFileSync(name, args, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    maxBuffer: 2 ** 28,
    env: { ...process.env, LC_ALL: "C", PATH: `${process.env.PATH}:/usr/sbin:/sbin` }
  })

/** The program, compiled into a directory of the test's. */
export const compiledBundle = Effect.map(temporaryDirectory, (directory) => {
  const program = path.join(directory, "volume-bundle")
  const sources = path.join(import.meta.dirname, "../../../guest/bundle")
  const files = readdirSync(sources)
    .filter((name) => name.endsWith(".c"))
    .map((name) => path.join(sources, name))
  tool(
    "gcc",
    "-D_GNU_SOURCE",
    "-std=gnu17",
    "-O2",
    "-static",
    "-o",
    program,
    ...files,
    "-lext2fs",
    "-lcom_err"
  )
  return program
})

/** A volume whose filesystem has this tree, of which `upper` is the app's. */
export const volumeOfTree = (
  directory: string,
  tree: string,
  features: ReadonlyArray<string> = []
): string => {
  const volume = path.join(directory, "volume.img")
  writeFileSync(volume, "")
  truncateSync(volume, 64 * 2 ** 20)
  tool("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", ...features, "-d", tree, volume)
  return volume
}

/** Serves a file over NBD as `vol`, with filters of nbdkit if there are any; gives the socket. */
export const served = (
  volume: string,
  filters: ReadonlyArray<string> = [],
  options: ReadonlyArray<string> = []
) =>
  Effect.gen(function* () {
    const socketPath = path.join(yield* temporaryDirectory, "nbd.sock")
    // Written once it takes connections, which a socket that is there does not yet.
    const ready = `${socketPath}.pid`
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(
          "nbdkit",
          [
            ...[
              "--foreground",
              "--exit-with-parent",
              "--readonly",
              "--exportname",
              "vol",
              "--unix",
              socketPath,
              "--pidfile",
              ready
            ],
            ...filters.map((filter) => `--filter=${filter}`),
            ...["file", volume, ...options]
          ],
          { stdio: "ignore" }
        )
      ),
      (server) => Effect.sync(() => server.kill("SIGKILL"))
    )
    while (!existsSync(ready)) yield* Effect.sleep(10)
    return { socketPath, child }
  })

export const layerOf = (program: string) =>
  layerBundleProgram.pipe(
    Layer.provide(
      Layer.succeed(GuestImage, {
        version: "",
        kernel: "",
        initramfs: "",
        base: "",
        tscProbe: "",
        jail: "",
        nbdRelay: "",
        volumeBundle: program
      })
    ),
    Layer.provide(NodeServices.layer)
  )

/** Writes the bundle of what is served into a file; gives the file and what was left out. */
export const bundleInto = (directory: string, socketPath: string, options: Partial<BundleOptions> = {}) =>
  Effect.gen(function* () {
    const bundles = yield* BundleWriter
    const bundle = yield* bundles.open({
      volume: { kind: "nbd", socketPath, exportName: "vol" },
      environment: undefined,
      at: 1_700_000_000_000,
      ...options
    })
    const pieces: Array<Uint8Array> = []
    yield* Stream.runForEach(bundle.contents, (piece) => Effect.sync(() => void pieces.push(piece.slice())))
    const archive = path.join(directory, "bundle.tar.gz")
    writeFileSync(archive, Buffer.concat(pieces))
    return { archive, leftOut: yield* bundle.leftOut, usedBytes: bundle.usedBytes }
  }).pipe(Effect.scoped)

/** Unpacks an archive with GNU tar, extended attributes and all. */
export const unpacked = (archive: string, into: string): string => {
  mkdirSync(into)
  tool("tar", "--xattrs", "--xattrs-include=*", "-C", into, "-xpzf", archive)
  return into
}

/** All that is to be known of a tree: a line for each name, with its content's digest and its attributes. */
export const listing = (root: string): string =>
  execFileSync(
    "bash",
    [
      "-c",
      `cd "$1" && find . -mindepth 1 -printf '%P %y %m %U %G %s %T@ %l\\n' | sed 's/ d \\([0-9]* [0-9]* [0-9]*\\) [0-9]* / d \\1 - /' | sort
       find . -type f -print0 | sort -z | xargs -0 -r sha256sum
       find . -type f -links +1 -printf '%i %P\\n' | sort | awk '{ if (!($1 in seen)) seen[$1] = ++n; $1 = seen[$1]; print }'
       find . -print0 | sort -z | xargs -0 -r getfattr -h -d -m - -e hex 2>/dev/null`,
      "bash",
      root
    ],
    { encoding: "latin1", maxBuffer: 2 ** 28, env: { ...process.env, LC_ALL: "C" } }
  )
