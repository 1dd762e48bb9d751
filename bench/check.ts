/**
 * What `nibrunnerd check` costs as a whole process, on a document that fills a host, against a script that checks
 * the same document with ajv and our own JSON Schema.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { attempt, tool } from "../scripts/local/problem.ts"
import { MAX_SLOTS } from "../src/config/ports.ts"
import type { Bench } from "./support/bench.ts"
import { documentOf } from "./support/large-document.ts"

const RUNS = 15
const root = join(import.meta.dirname, "..")

/** How long a command takes from its start to its end, in milliseconds; it must succeed. */
const timed = (command: string, args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const start = performance.now()
    yield* tool(command, args)
    return performance.now() - start
  })

export const bench: Bench = {
  about: `nibrunnerd check on a document of ${MAX_SLOTS} apps against a script with ajv, whole processes, ${RUNS} pairs`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the document", () => mkdtempSync(join(tmpdir(), "nibrunner-check-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true }))
      )
      const document = join(folder, "desired.json")
      const text = JSON.stringify(documentOf(MAX_SLOTS))
      yield* attempt("the document cannot be written", () => writeFileSync(document, text))
      yield* say(`${(text.length / 1024 / 1024).toFixed(1)} MiB`)

      const ours = timed(join(root, "bin/nibrunnerd"), ["check", document])
      const ajv = timed(process.execPath, [
        join(root, "bench/support/ajv-check.mjs"),
        join(root, "deploy/schema/desired.schema.json"),
        document
      ])
      const bare = timed(process.execPath, ["-e", "0"])
      const start = timed(join(root, "bin/nibrunnerd"), ["check", join(root, "deploy/config.example.toml")])
      // The first call makes the bundle when a source is newer, and both programs are read from the disk once.
      yield* ours
      yield* ajv

      const ratios: Array<number> = []
      const starts: Array<number> = []
      for (let run = 1; run <= RUNS; run++) {
        const [a, b, c, d] = [yield* ours, yield* ajv, yield* start, yield* bare]
        ratios.push(a / b)
        starts.push(c / d)
        yield* say(
          `run ${run}: ${a.toFixed(0)} ms, ajv ${b.toFixed(0)} ms; a small file ${c.toFixed(0)} ms, node -e 0 ${d.toFixed(0)} ms`
        )
      }
      return {
        ajv: { what: "check ÷ the script with ajv", values: ratios, atMost: 1 },
        start: { what: "check of a small file ÷ node -e 0", values: starts, atMost: 3 }
      }
    })
}
