/** What `install` and `start` have in common. */
import { Console, Effect, FileSystem } from "effect"
import type { Installer } from "../services/Installer.ts"
import { type ConfigNotValid, type ConfigUnreadable, readConfigAt } from "./config-file.ts"
import { Failed } from "./failure.ts"
import { printable } from "./printable.ts"

/** The configuration in a file; undefined where there is no file of that name. */
export const configIfPresent = (
  file: string
): Effect.Effect<
  Effect.Success<ReturnType<typeof readConfigAt>> | undefined,
  ConfigNotValid | ConfigUnreadable,
  FileSystem.FileSystem
> =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    // A link that leads nowhere is somebody's, and is read, which says what is wrong with it.
    const there = yield* files.exists(file).pipe(Effect.orElseSucceed(() => true))
    const linked = yield* files.readLink(file).pipe(
      Effect.as(true),
      Effect.orElseSucceed(() => false)
    )
    return there || linked ? yield* readConfigAt(file) : undefined
  })

/** Says why a host was not laid out or started: every reason on a line of its own. */
export const withReasons = <A, R>(
  work: Effect.Effect<A, Effect.Error<ReturnType<Installer["Service"]["install"]>>, R>
) =>
  Effect.catchTag(work, "HostNotReady", ({ reasons, refused }) =>
    Console.error(
      [`nibrunnerd: ${refused}:`, ...reasons.map((reason) => `  - ${printable(reason)}`)].join("\n")
    ).pipe(Effect.andThen(Effect.fail(new Failed())))
  )
