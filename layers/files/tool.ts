/** Programs of the host that are run for what they make. */
import { Effect, Schema, Stream } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"

/** A tool did not do its work. `message` names it and says its last word. */
export class ToolFailed extends Schema.TaggedError<ToolFailed>()("ToolFailed", {
  tool: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `${this.tool} ${this.reason}`
  }
}

/** A tool that says nothing for so long is ended. */
const LIMIT = "120 seconds"
/** Of what a tool says, only so much of the end is kept. Characters. */
const KEPT = 4096

const packages: Readonly<Record<string, string>> = { mke2fs: "e2fsprogs", mksquashfs: "squashfs-tools" }

/** The last line that is not empty, at most 200 characters of it. */
const lastLine = (text: string): string =>
  text
    .split(/[\r\n]+/u)
    .map((line) => line.trim())
    .findLast((line) => line !== "")
    ?.slice(0, 200) ?? "it said nothing"

/** Runs a tool to its end; interrupted, it is killed. Its standard output is thrown away. */
export const runTool = (
  tool: string,
  args: ReadonlyArray<string>
): Effect.Effect<void, ToolFailed, ChildProcessSpawner.ChildProcessSpawner> =>
  Effect.gen(function* () {
    const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
    const child = yield* spawner.spawn(
      ChildProcess.make(tool, args, {
        stdin: "ignore",
        stdout: "ignore",
        // Also without root, whose PATH has the sbin directories.
        env: { LC_ALL: "C", PATH: `${process.env.PATH ?? ""}:/usr/sbin:/usr/bin:/sbin:/bin` },
        forceKillAfter: "2 seconds"
      })
    )
    const said = yield* child.stderr.pipe(
      Stream.decodeText(),
      Stream.runFold(
        () => "",
        (kept, piece) => (kept + piece).slice(-KEPT)
      )
    )
    const code = yield* child.exitCode
    if (code !== 0) {
      return yield* new ToolFailed({ tool, reason: `failed (exit code ${code}): ${lastLine(said)}` })
    }
  }).pipe(
    Effect.scoped,
    Effect.catchTag("PlatformError", (error) =>
      Effect.fail(
        new ToolFailed({
          tool,
          reason:
            error.reason._tag === "NotFound"
              ? `is not installed${tool in packages ? ` (Debian package ${packages[tool]})` : ""}`
              : `could not be run: ${error.message}`
        })
      )
    ),
    Effect.timeoutOrElse({
      duration: LIMIT,
      orElse: () =>
        Effect.fail(new ToolFailed({ tool, reason: `did not end within ${LIMIT} and was stopped` }))
    })
  )
