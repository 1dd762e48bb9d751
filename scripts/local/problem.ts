/** What can go wrong around the daemon, as a sentence, and the tools that are called there. */
import { Effect, Schema, Stream } from "effect"
import { ChildProcess } from "effect/process"

/** Something that the demo or a bench cannot go on without; `message` says what and why. */
export class Problem extends Schema.TaggedError<Problem>()("Problem", { message: Schema.String }) {}

/** A step that talks to the operating system; what it throws becomes a sentence that begins with `what`. */
export const attempt = <A>(what: string, run: () => A): Effect.Effect<A, Problem> =>
  Effect.try({
    try: run,
    catch: (cause) =>
      new Problem({ message: `${what}: ${cause instanceof Error ? cause.message : String(cause)}` })
  })

/** Runs a tool to its end, its output line by line to `onLine`; fails with its last lines when it fails. */
export const tool = (
  command: string,
  args: ReadonlyArray<string>,
  onLine: (line: string) => Effect.Effect<void> = () => Effect.void
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const handle = yield* ChildProcess.make(command, args, {
        stdin: "ignore",
        killSignal: "SIGTERM",
        forceKillAfter: "5 seconds"
      })
      const last: Array<string> = []
      yield* handle.all.pipe(
        Stream.decodeText(),
        Stream.splitLines,
        Stream.runForEach((line) =>
          Effect.suspend(() => {
            last.push(line)
            if (last.length > 5) last.shift()
            return onLine(line)
          })
        )
      )
      const code = yield* handle.exitCode
      if (code !== 0) {
        return yield* new Problem({
          message: [`${command} failed with exit code ${code}`, ...last].join("\n    ")
        })
      }
    })
  ).pipe(
    Effect.catchTag(
      "PlatformError",
      (error) => new Problem({ message: `${command} could not be run: ${error.message}` })
    )
  )
