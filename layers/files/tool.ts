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

/** A tool that takes longer is ended. */
const LIMIT = "120 seconds"
/** Of what a tool says, only so much of the end is kept. Characters. */
const KEPT = 4096

const packages: Readonly<Record<string, string>> = {
  debugfs: "e2fsprogs",
  fakeroot: "fakeroot",
  mke2fs: "e2fsprogs",
  mknod: "coreutils",
  mksquashfs: "squashfs-tools"
}

/** What a program says, read to its end; of that the last `kept` characters. */
export const lastOf = <E>(stream: Stream.Stream<Uint8Array, E>, kept: number): Effect.Effect<string, E> =>
  stream.pipe(
    Stream.decodeText(),
    Stream.runFold(
      () => "",
      (said, piece) => (said + piece).slice(-kept)
    )
  )

/** The last line that is not empty, at most 200 characters of it. */
const lastLine = (text: string): string =>
  text
    .split(/[\r\n]+/u)
    .map((line) => line.trim())
    .findLast((line) => line !== "")
    ?.slice(0, 200) ?? "it said nothing"

export interface ToolOptions {
  /** How long it may take; 120 seconds where nothing is said. */
  readonly limit?: `${number} ${"seconds" | "minutes"}`
  /** For a tool that goes on after an error: what of its standard error is one, whatever its exit code. */
  readonly isError?: (line: string) => boolean
}

/** Runs a tool to its end; interrupted, it is killed. Its standard output is thrown away. */
export const runTool = (
  tool: string,
  args: ReadonlyArray<string>,
  { limit = LIMIT, isError }: ToolOptions = {}
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
    const said = yield* lastOf(child.stderr, KEPT)
    const code = yield* child.exitCode
    if (code !== 0) {
      return yield* new ToolFailed({ tool, reason: `failed (exit code ${code}): ${lastLine(said)}` })
    }
    const error = isError === undefined ? undefined : said.split("\n").find(isError)
    if (error !== undefined) return yield* new ToolFailed({ tool, reason: `failed: ${error.slice(0, 200)}` })
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
      duration: limit,
      orElse: () =>
        Effect.fail(new ToolFailed({ tool, reason: `did not end within ${limit} and was stopped` }))
    })
  )
