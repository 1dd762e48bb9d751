/**
 * What it takes to write a volume's bundle, from the NBD server of its checkpoint to an object of a store, against GNU tar
 * and pigz on the same tree, mounted. Both end with the archive on the disk.
 */
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, renameSync, truncateSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { GZIP_LEVEL } from "../layers/export/program.ts"
import { attempt } from "../scripts/local/problem.ts"
import { served } from "../test/support/bundle/fixture.ts"
import type { Bench } from "./support/bench.ts"
import { plantSourceTree } from "./support/source-tree.ts"

const PAIRS = 3
/** Bytes of files. */
const TREE_BYTES = Number(process.env.NIBRUNNER_BENCH_EXPORT_MIB ?? 1024) * 2 ** 20
const IMAGE = join(import.meta.dirname, "../.nibrunner/guest")

const run = (tool: string, ...args: ReadonlyArray<string>): string =>
  execFileSync(tool, args, {
    encoding: "utf8",
    env: { ...process.env, LC_ALL: "C", PATH: `${process.env.PATH}:/usr/sbin:/sbin` }
  })

const makeVolume = (folder: string): string => {
  const tree = join(folder, "tree")
  const volume = join(folder, "volume.img")
  mkdirSync(join(tree, "work"), { recursive: true })
  renameSync(join(folder, "source"), join(tree, "upper"))
  writeFileSync(volume, "")
  truncateSync(volume, 4 * TREE_BYTES)
  run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-d", tree, volume)
  return volume
}

/** The volume's own filesystem where this machine mounts a file that the bench has made, else the tree that it was made of. */
const mounted = (folder: string, volume: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const point = join(folder, "mounted")
      mkdirSync(point)
      try {
        run("mount", "-o", "loop,ro", volume, point)
        return { root: join(point, "upper"), point }
      } catch {
        return { root: join(folder, "tree/upper"), point: undefined }
      }
    }),
    ({ point }) => Effect.sync(() => point !== undefined && run("umount", point))
  )

const byTools = (root: string, place: string): number => {
  const started = performance.now()
  const archive = join(place, "bundle.tar.gz")
  run(
    // Exports give way to guests: so that a busy machine is the same to both.
    "nice",
    "-n",
    "10",
    "bash",
    "-c",
    `set -o pipefail; tar --xattrs --xattrs-include='*' -C "$1" -cf - . | pigz -${GZIP_LEVEL} > "$2"; sync "$2"`,
    "bash",
    root,
    archive
  )
  return (performance.now() - started) / 1000
}

interface Ours {
  readonly seconds: number
  readonly idle: number
  readonly peak: number
  readonly children: number
}

const ours = (socket: string, place: string): Ours =>
  JSON.parse(
    run(
      process.execPath,
      join(import.meta.dirname, "export/child.ts"),
      ...[IMAGE, socket, "vol", join(place, "store"), join(place, "state")]
    )
  )

/** Runs it in a folder of its own, on a disk that has nothing left to write. */
const fresh = <A>(folder: string, work: (place: string) => A) =>
  attempt("a run failed", () => {
    const place = mkdtempSync(join(folder, "run-"))
    for (const name of ["store", "state"]) mkdirSync(join(place, name))
    run("sync", "-f", folder)
    return work(place)
  })

export const bench: Bench = {
  about: `a bundle of a volume with ${TREE_BYTES / 2 ** 20} MiB of small files, against tar --xattrs -c | pigz -${GZIP_LEVEL}.`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the bench", () => mkdtempSync(join(tmpdir(), "nibrunner-bench-export-"))),
        (path) => Effect.sync(() => void run("rm", "-rf", path))
      )
      const [files, volume] = yield* attempt("the volume cannot be made", () => {
        const count = plantSourceTree(join(folder, "source"), TREE_BYTES)
        return [count, makeVolume(folder)] as const
      })
      const { root, point } = yield* mounted(folder, volume)
      const { socketPath: socket } = yield* served(volume)
      yield* say(
        `${files} files; ${point === undefined ? "tar reads the tree that the volume was made of" : "tar reads the volume, mounted"}`
      )
      // Both read from the memory of this machine: the first reading is nobody's.
      yield* fresh(folder, () =>
        run("sh", "-c", 'cat "$1" > /dev/null; tar -C "$2" -cf - . | cat > /dev/null', "sh", volume, root)
      )
      const ratios: Array<number> = []
      const memory: Array<number> = []
      const programs: Array<number> = []
      for (let pair = 0; pair < PAIRS; pair += 1) {
        const first = pair % 2 === 0 ? yield* fresh(folder, (place) => byTools(root, place)) : undefined
        const own = yield* fresh(folder, (place) => ours(socket, place))
        const tools = first ?? (yield* fresh(folder, (place) => byTools(root, place)))
        ratios.push(own.seconds / tools)
        memory.push(own.peak - own.idle)
        programs.push(own.children)
        yield* say(
          `ours ${own.seconds.toFixed(1)} s, tools ${tools.toFixed(1)} s; daemon ${own.peak.toFixed(0)} MiB at most, ${own.idle.toFixed(0)} MiB idle; its programs ${own.children.toFixed(0)} MiB`
        )
      }
      return {
        time: { what: "time, ours ÷ tar --xattrs -c | pigz", values: ratios, atMost: 1.2 },
        memory: { what: "peak memory of the daemon over the idle one, MiB", values: memory, atMost: 100 },
        programs: { what: "peak memory of the reader and of pigz, MiB", values: programs }
      }
    })
}
