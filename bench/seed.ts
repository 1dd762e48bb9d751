/**
 * What it takes to start a volume with the contents of an archive, against the tools that do the least for it: GNU
 * tar unpacks, `mke2fs -d` writes. Both end with the volume's file on the disk.
 */
import { execFileSync } from "node:child_process"
import { closeSync, fsyncSync, mkdirSync, mkdtempSync, openSync, truncateSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { attempt } from "../scripts/local/problem.ts"
import type { Bench } from "./support/bench.ts"
import { plantSourceTree } from "./support/source-tree.ts"

const PAIRS = 3
/** Bytes of files. */
const TREE_BYTES = Number(process.env.NIBRUNNER_BENCH_SEED_MIB ?? 1024) * 2 ** 20
const VOLUME_BYTES = 4 * TREE_BYTES
/** MiB over the idle process. */
const MEMORY_LIMIT = 100

const run = (tool: string, ...args: ReadonlyArray<string>): string =>
  execFileSync(tool, args, {
    encoding: "utf8",
    env: { ...process.env, LC_ALL: "C", PATH: `${process.env.PATH}:/usr/sbin:/sbin` }
  })

const seconds = (work: () => void): number => {
  const started = performance.now()
  work()
  return (performance.now() - started) / 1000
}

const byTools = (folder: string, archive: string): number => {
  const tree = join(folder, "tree")
  const volume = join(folder, "volume.img")
  mkdirSync(join(tree, "upper/app/data"), { recursive: true })
  return seconds(() => {
    run("tar", "-xf", archive, "-C", join(tree, "upper/app/data"))
    writeFileSync(volume, "")
    truncateSync(volume, VOLUME_BYTES)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-d", tree, volume)
    const file = openSync(volume, "r")
    fsyncSync(file)
    closeSync(file)
  })
}

interface Ours {
  readonly seconds: number
  readonly idle: number
  readonly peak: number
}

const ours = (folder: string, archive: string): Ours => {
  const script = join(import.meta.dirname, "seed/child.ts")
  return JSON.parse(run(process.execPath, script, folder, archive, String(VOLUME_BYTES)))
}

/**
 * Runs it in a folder of its own, on a disk that has nothing left to write. Nothing is removed between the runs: for
 * minutes ext4 looks at each inode that was freed before it takes another, and whoever comes next would pay for it.
 */
const fresh = <A>(folder: string, work: (place: string) => A) =>
  attempt("a run failed", () => {
    const place = mkdtempSync(join(folder, "run-"))
    run("sync", "-f", folder)
    return work(place)
  })

export const bench: Bench = {
  about: `a tar of ${TREE_BYTES / 2 ** 20} MiB of small files into a new volume, against tar -x followed by mke2fs -d.`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the bench", () => mkdtempSync(join(tmpdir(), "nibrunner-bench-seed-"))),
        (path) => Effect.sync(() => void run("rm", "-rf", path))
      )
      const archive = join(folder, "source.tar")
      const files = yield* attempt("the tree cannot be made", () => {
        const count = plantSourceTree(join(folder, "source"), TREE_BYTES)
        run("tar", "-cf", archive, "-C", join(folder, "source"), ".")
        return count
      })
      yield* say(`${files} files`)
      const ratios: Array<number> = []
      const memory: Array<number> = []
      for (let pair = 0; pair < PAIRS; pair += 1) {
        const first = pair % 2 === 0 ? yield* fresh(folder, (place) => byTools(place, archive)) : undefined
        const own = yield* fresh(folder, (place) => ours(place, archive))
        const tools = first ?? (yield* fresh(folder, (place) => byTools(place, archive)))
        ratios.push(own.seconds / tools)
        memory.push(own.peak - own.idle)
        yield* say(
          `ours ${own.seconds.toFixed(1)} s, tools ${tools.toFixed(1)} s; memory ${own.peak.toFixed(0)} MiB at most, ${own.idle.toFixed(0)} MiB idle`
        )
      }
      return {
        time: { what: "time, ours ÷ tar -x and mke2fs -d", values: ratios, atMost: 1.2 },
        memory: { what: "peak memory over the idle process, MiB", values: memory, atMost: MEMORY_LIMIT }
      }
    })
}
