/** How a command that fails ends: one sentence on stderr and an exit code, never a stack. */
import { Cause, Console, Effect, Runtime, Schema } from "effect"
import { printable } from "./printable.ts"

/** The answer is no, and has been said. */
export class Failed extends Schema.TaggedError<Failed>()("Failed", {}) {
  override readonly [Runtime.errorExitCode] = 1
  override readonly [Runtime.errorReported] = false
}

/** The call's words are wrong, and that has been said. */
export class WrongUsage extends Schema.TaggedError<WrongUsage>()("WrongUsage", {}) {
  override readonly [Runtime.errorExitCode] = 2
  override readonly [Runtime.errorReported] = false
}

const hasBeenSaid = (error: unknown): boolean =>
  error instanceof Error && error[Runtime.errorReported] === false

const isHelp = (error: unknown): error is { readonly errors: ReadonlyArray<unknown> } =>
  error instanceof Error && "_tag" in error && error._tag === "ShowHelp"

const sentenceOf = (cause: Cause.Cause<unknown>, error: unknown): string => {
  const message = error instanceof Error ? error.message : String(error)
  return Cause.hasDies(cause)
    ? `a fault of the program itself: ${message} (NIBRUNNER_LOG=debug tells where)`
    : message
}

/** Says why a command failed. `name` is what was called. */
export const saidBy =
  (name: string) =>
  <A, E, R>(program: Effect.Effect<A, E, R>): Effect.Effect<void, Failed | WrongUsage | E, R> =>
    program.pipe(
      Effect.asVoid,
      Effect.catchCause((cause): Effect.Effect<void, Failed | WrongUsage | E> => {
        if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause)
        const error: unknown = Cause.squash(cause)
        if (isHelp(error)) return error.errors.length > 0 ? Effect.fail(new WrongUsage()) : Effect.void
        if (hasBeenSaid(error)) return Effect.failCause(cause)
        return Console.error(printable(`${name}: ${sentenceOf(cause, error)}`)).pipe(
          Effect.andThen(Effect.logDebug("where it failed", cause)),
          Effect.andThen(Effect.fail(new Failed()))
        )
      })
    )
