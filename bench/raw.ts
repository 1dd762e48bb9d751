/**
 * A raw port of an app that is awake, against the same path without us: the same microVM behind the same tap, with one
 * rule of nftables by hand. Bytes go to an echo in the guest and come back; one connection, in turns.
 */
import { join } from "node:path"
import { Effect, Schema, Stream } from "effect"
import { ChildProcess } from "effect/process"
import { Problem } from "../scripts/local/problem.ts"
import type { Bench } from "./support/bench.ts"

const ROUNDS = 9
/** Of one transfer; a round has two of either kind. */
const MEBIBYTES = 32

const Turns = Schema.fromJsonString(
  Schema.Array(Schema.Struct({ ours: Schema.Number, byHand: Schema.Number }))
)

const rate = (seconds: number) => `${((2 * MEBIBYTES) / seconds).toFixed(0)} MiB/s`

export const bench: Bench = {
  about: `a raw port that the kernel carries, against a forward by hand; ${ROUNDS} rounds of twice ${MEBIBYTES} MiB each way`,
  run: (say) =>
    Effect.gen(function* () {
      const stage = yield* ChildProcess.make(
        "unshare",
        [
          "--net",
          "--",
          process.execPath,
          join(import.meta.dirname, "raw/stage.ts"),
          String(ROUNDS),
          String(MEBIBYTES)
        ],
        { stdin: "ignore", stderr: "inherit", forceKillAfter: "5 seconds" }
      )
      const text = yield* stage.stdout.pipe(
        Stream.decodeText(),
        Stream.runFold(
          () => "",
          (said, piece) => said + piece
        )
      )
      const code = yield* stage.exitCode
      if (code !== 0) return yield* new Problem({ message: `the stage ended with exit code ${code}` })
      const turns = yield* Schema.decodeUnknownEffect(Turns)(text.trim())
      for (const { ours, byHand } of turns) yield* say(`ours ${rate(ours)}, by hand ${rate(byHand)}`)
      return {
        throughput: {
          what: "bytes a second over a forward by hand",
          atLeast: 0.9,
          values: turns.map(({ ours, byHand }) => byHand / ours)
        }
      }
    }).pipe(
      Effect.mapError((error) => (error instanceof Problem ? error : new Problem({ message: String(error) })))
    )
}
