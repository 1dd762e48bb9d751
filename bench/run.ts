/**
 * Runs one bench:
 *
 *     npm run bench -- NAME [--json]
 *
 * Prints what was run and the medians. With `--json` stdout holds one line,
 * `{"bench", "ratios": {NAME: MEDIAN, …}, "runs"}`, and the rest goes to stderr.
 */
import { readdirSync } from "node:fs"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect } from "effect"
import { Problem } from "../scripts/local/problem.ts"
import { type Bench, type Measure, median } from "./support/bench.ts"

const names = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith(".ts") && file !== "run.ts")
  .map((file) => file.slice(0, -".ts".length))
  .sort()

const flags = process.argv.slice(2).filter((word) => word.startsWith("--"))
const [name = "", ...more] = process.argv.slice(2).filter((word) => !word.startsWith("--"))
if (!names.includes(name) || more.length > 0 || flags.some((flag) => flag !== "--json")) {
  process.stderr.write(`usage: npm run bench -- NAME [--json]; the benches are ${names.join(", ")}\n`)
  process.exit(2)
}
const json = flags.includes("--json")

const say = (text: string) =>
  Effect.sync(() => void (json ? process.stderr : process.stdout).write(`${text}\n`))

const round = (value: number) => Number(value.toPrecision(4))

const limit = ({ atMost, atLeast }: Measure) =>
  atMost !== undefined ? `  (at most ${atMost})` : atLeast !== undefined ? `  (at least ${atLeast})` : ""

const main = Effect.gen(function* () {
  const { bench } = yield* Effect.tryPromise({
    try: (): Promise<{ bench: Bench }> => import(`./${name}.ts`),
    catch: (cause) => new Problem({ message: `bench/${name}.ts cannot be loaded: ${cause}` })
  })
  yield* say(`${name}: ${bench.about}\n`)
  const measures = Object.entries(yield* Effect.scoped(bench.run(say)))
  yield* say("")
  for (const [key, measure] of measures) {
    const values = measure.values.map(round).join(" ")
    yield* say(
      `${key.padEnd(12)} ${round(median(measure.values))}${limit(measure)}  ${measure.what}: ${values}`
    )
  }
  if (!json) return
  const ratios = Object.fromEntries(measures.map(([key, { values }]) => [key, round(median(values))]))
  const runs = Math.min(...measures.map(([, { values }]) => values.length))
  yield* Effect.sync(() => process.stdout.write(`${JSON.stringify({ bench: name, ratios, runs })}\n`))
})

main.pipe(
  Effect.tapError((problem) =>
    Effect.sync(() => void process.stderr.write(`bench ${name}: ${problem.message}\n`))
  ),
  Effect.provide(NodeServices.layer),
  (program) => NodeRuntime.runMain(program, { disableErrorReporting: true })
)
