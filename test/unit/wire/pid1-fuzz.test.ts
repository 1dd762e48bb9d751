/** PID 1's conversation and supervision, built with sanitizers and fed with bytes that no host would send. */
import { execFile } from "node:child_process"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { compileSanitized } from "../../guest/compile.ts"

/** A minute, unless `NIBRUNNER_FUZZ_SECONDS` says otherwise. */
const seconds = Number(process.env.NIBRUNNER_FUZZ_SECONDS ?? 60)
const seed = Number(process.env.NIBRUNNER_FUZZ_SEED ?? Date.now())

it.live(
  `PID 1 keeps its memory and its promises under random bytes for ${seconds} s (seed ${seed})`,
  () =>
    Effect.callback<void>((resume) => {
      const fuzz = execFile(
        compileSanitized("fuzz"),
        [String(seconds), String(seed)],
        (error, stdout, stderr) => {
          resume(
            Effect.sync(() => {
              assert.isNull(error, `with NIBRUNNER_FUZZ_SEED=${seed}:\n${stderr}`)
              assert.isAbove(Number(stdout), 0)
            })
          )
        }
      )
      return Effect.sync(() => fuzz.kill("SIGKILL"))
    }),
  seconds * 1000 + 120_000
)
