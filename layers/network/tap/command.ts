/** Programs of the kernel's network: what they are told on standard input, and what they say. */
import { Effect, Schema, Stream } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"

export type NetworkTool = "ip" | "nft" | "conntrack"

/** The Debian package that each comes with. */
const packages: Readonly<Record<NetworkTool, string>> = {
  ip: "iproute2",
  nft: "nftables",
  conntrack: "conntrack"
}

/** `reason` is a clause that names the program. */
export class CommandFailed extends Schema.TaggedError<CommandFailed>()("CommandFailed", {
  reason: Schema.String,
  /** All that it said on standard error, for whoever knows what to expect. */
  said: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

/** A program that takes longer is ended: the kernel answers at once. */
const LIMIT = "30 seconds"
/** Of what it says on standard error, so many characters of the beginning are kept: the cause comes first. */
const KEPT = 4096

/** Also without root's PATH, which has the sbin directories; and without the operator's language. */
export const environment = (): Record<string, string> => ({
  LC_ALL: "C",
  PATH: `${process.env.PATH ?? ""}:/usr/sbin:/usr/bin:/sbin:/bin`
})

const firstLine = (text: string): string =>
  text
    .split(/[\r\n]+/u)
    .map((line) => line.trim().replace(/^\/dev\/stdin:[\d:-]+ /u, ""))
    .find((line) => line !== "")
    ?.slice(0, 200) ?? "it said nothing"

/** Runs it to its end, and gives what it printed. */
export const runCommand = (
  tool: NetworkTool,
  args: ReadonlyArray<string>,
  input = ""
): Effect.Effect<string, CommandFailed, ChildProcessSpawner.ChildProcessSpawner> =>
  Effect.gen(function* () {
    const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
    const child = yield* spawner.spawn(
      ChildProcess.make(tool, args, {
        stdin: input === "" ? "ignore" : Stream.make(new TextEncoder().encode(input)),
        env: environment(),
        forceKillAfter: "2 seconds"
      })
    )
    const text = (stream: typeof child.stdout, most: number) =>
      stream.pipe(
        Stream.decodeText(),
        Stream.runFold(
          () => "",
          (kept, piece) => (kept.length < most ? kept + piece : kept)
        )
      )
    const [printed, said] = yield* Effect.all([text(child.stdout, Infinity), text(child.stderr, KEPT)], {
      concurrency: 2
    })
    const code = yield* child.exitCode
    return code === 0
      ? printed
      : yield* new CommandFailed({ reason: `${tool} failed (exit code ${code}): ${firstLine(said)}`, said })
  }).pipe(
    Effect.scoped,
    Effect.catchTag("PlatformError", (error) =>
      Effect.fail(
        new CommandFailed({
          reason:
            error.reason._tag === "NotFound"
              ? `${tool} is not installed (Debian package ${packages[tool]})`
              : `${tool} could not be run: ${error.message}`,
          said: ""
        })
      )
    ),
    Effect.timeoutOrElse({
      duration: LIMIT,
      orElse: () =>
        Effect.fail(
          new CommandFailed({ reason: `${tool} did not end within ${LIMIT} and was stopped`, said: "" })
        )
    })
  )
