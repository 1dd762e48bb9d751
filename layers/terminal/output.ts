/**
 * The terminal as one that is written to. The platform's own also opens stdin for keys, and loads all that reads them,
 * before a command has said a word; none of ours asks for input.
 */
import { Effect, Layer, PlatformError, Terminal } from "effect"

const noInput = Effect.die(new Error("no command reads from the terminal"))

const columns = Effect.sync(() => process.stdout.columns ?? 0)
const rows = Effect.sync(() => process.stdout.rows ?? 0)

const display = (text: string): Effect.Effect<void, PlatformError.PlatformError> =>
  Effect.uninterruptible(
    Effect.callback((resume) => {
      process.stdout.write(text, (cause) => {
        resume(
          cause === undefined || cause === null
            ? Effect.void
            : Effect.fail(
                PlatformError.badArgument({
                  module: "Terminal",
                  method: "display",
                  description: "stdout does not take it",
                  cause
                })
              )
        )
      })
    })
  )

export const layerOutputTerminal = Layer.succeed(
  Terminal.Terminal,
  Terminal.make({ columns, rows, size: noInput, readInput: noInput, readLine: noInput, display })
)
