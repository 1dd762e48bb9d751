/** ZeroFS's program, run for one command, and what it needs of the daemon's environment. */
import { Effect, Schema } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"
import { S3_VARIABLES, ZEROFS_VARIABLE } from "../../../src/config/host-env.ts"
import { lastOf } from "../../files/tool.ts"

/** A command of ZeroFS's was refused. `reason` is ZeroFS's own last word, without a secret. */
export class CommandFailed extends Schema.TaggedError<CommandFailed>()("CommandFailed", {
  command: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `zerofs ${this.command}: ${this.reason}`
  }
}

/** From a store that is slow. */
const LIMIT_SECONDS = 120
/** Characters of what it says that are kept. */
const KEPT = 65_536

/** Where S3 is when it is not Amazon's; ZeroFS's configuration may refer to it as to the secrets. */
export const ENDPOINT_VARIABLES = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] as const

/** Nothing of the daemon's environment but what ZeroFS's configuration refers to. Moments are printed in UTC. */
export const zerofsEnvironment = (
  environment: Readonly<Record<string, string | undefined>> = process.env
): Record<string, string> => {
  const passed = [ZEROFS_VARIABLE, ...S3_VARIABLES, ...ENDPOINT_VARIABLES].flatMap((name) => {
    const value = environment[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  return {
    ...Object.fromEntries(passed),
    PATH: environment.PATH ?? "/usr/sbin:/usr/bin:/sbin:/bin",
    LC_ALL: "C.UTF-8",
    TZ: "UTC",
    RUST_BACKTRACE: "0"
  }
}

/** The sentence in what ZeroFS says before it ends in failure, with its last cause. */
export const lastWord = (said: string): string => {
  const lines = said
    .replace(/\u001b\[[\d;]*m/gu, "")
    .split(/\r?\n/u)
    .map((line) => line.replace(/\p{Cc}/gu, " ").trim())
    .filter((line) => line !== "")
  const error = lines.findLastIndex((line) => /^error: /iu.test(line))
  if (error < 0) return lines.at(-1)?.slice(0, 300) ?? "it said nothing"
  const causes = lines.slice(error + 1)
  const from = causes.findIndex((line) => /^Caused by:/u.test(line))
  const until = causes.findIndex((line) => /backtrace:/iu.test(line))
  const last = from < 0 ? undefined : causes.slice(from + 1, until < 0 ? undefined : until).at(-1)
  const sentence = lines[error]?.replace(/^error: /iu, "") ?? ""
  return `${sentence}${last === undefined ? "" : `: ${last.replace(/^\d+: /u, "")}`}`.slice(0, 300)
}

/** Runs `zerofs` with these arguments to its end and gives what it prints. Interrupted, it is killed. */
export const runZerofs = (
  binary: string,
  args: ReadonlyArray<string>
): Effect.Effect<string, CommandFailed, ChildProcessSpawner.ChildProcessSpawner> => {
  const command = args.filter((word) => !word.startsWith("/") && !word.startsWith("-")).join(" ")
  const failed = (reason: string) => new CommandFailed({ command, reason })
  return Effect.gen(function* () {
    const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
    const child = yield* spawner.spawn(
      ChildProcess.make(binary, args, {
        stdin: "ignore",
        env: zerofsEnvironment(),
        forceKillAfter: "2 seconds"
      })
    )
    const [printed, said] = yield* Effect.all([lastOf(child.stdout, KEPT), lastOf(child.stderr, KEPT)], {
      concurrency: "unbounded"
    })
    const code = yield* child.exitCode
    return code === 0 ? printed : yield* failed(lastWord(said === "" ? printed : said))
  }).pipe(
    Effect.scoped,
    Effect.catchTag("PlatformError", (error) => Effect.fail(failed(notRun(binary, error)))),
    Effect.timeoutOrElse({
      duration: LIMIT_SECONDS * 1000,
      orElse: () => Effect.fail(failed(`it did not end within ${LIMIT_SECONDS} s and was stopped`))
    })
  )
}

/** Why the program could not even be started. */
export const notRun = (
  binary: string,
  error: { readonly reason: { readonly _tag: string }; readonly message: string }
): string =>
  error.reason._tag === "NotFound"
    ? `${binary} does not exist (volumes.zerofs.binary)`
    : `${binary} could not be run: ${error.message}`
