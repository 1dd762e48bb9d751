/** Takes up the certificate, its key and the clients' authorities when their files change. */
import { watch } from "node:fs"
import * as path from "node:path"
import { Clock, Duration, Effect, Queue, Result, type Scope } from "effect"
import { type Credentials, type CredentialsProblem, readCredentials, type TlsFiles } from "./credentials.ts"

/** The files are read so often whatever the watch says. */
const BACKSTOP = Duration.seconds(30)
/** Certificate and key are replaced one after the other. */
const SETTLE = Duration.millis(100)
/** What is wrong for longer is not a replacement under way. */
const PATIENCE = Duration.seconds(1)

/**
 * Gives `take` what the files hold whenever that is something new that can be used. What cannot be used leaves the
 * former in force and is said once.
 */
export const renewing = (
  files: TlsFiles,
  inForce: Credentials,
  take: (credentials: Credentials) => void
): Effect.Effect<never> =>
  Effect.suspend(() => {
    const directories = new Set(
      [files.certificate, files.key, files.clientCa].flatMap((file) =>
        file === undefined ? [] : [path.dirname(file)]
      )
    )
    let digest = inForce.digest
    /** What was wrong the last time, said or not, and since when. */
    let wrong: { readonly message: string; readonly since: number } | undefined
    let said: string | undefined

    const use = (credentials: Credentials) => {
      wrong = undefined
      said = undefined
      if (credentials.digest === digest) return Effect.as(Effect.void, BACKSTOP)
      digest = credentials.digest
      take(credentials)
      return Effect.logInfo(`the proxy's certificate was renewed: ${credentials.summary}`).pipe(
        Effect.andThen(warnIfExpired(credentials)),
        Effect.as(BACKSTOP)
      )
    }

    const complain = ({ message }: CredentialsProblem) =>
      Effect.gen(function* () {
        if (message === said) return BACKSTOP
        const now = yield* Clock.currentTimeMillis
        if (message !== wrong?.message) wrong = { message, since: now }
        const left = Duration.toMillis(PATIENCE) - (now - wrong.since)
        // Changes that come in between are looked at at once; what is wrong has its time all the same.
        if (left > 0) return Duration.millis(left)
        said = message
        yield* Effect.logError(`${message}; the proxy goes on with the certificate that it has`)
        return BACKSTOP
      })

    const look = Effect.result(readCredentials(files)).pipe(
      Effect.flatMap((result) => (Result.isSuccess(result) ? use(result.success) : complain(result.failure)))
    )

    /** The watch is made anew each time, before the files are read: so no change falls between, nor a directory that was replaced. */
    return Effect.gen(function* () {
      const changes = yield* Queue.sliding<void>(1)
      for (const directory of directories)
        yield* watched(directory, () => Queue.offerUnsafe(changes, undefined))
      const patience = yield* look
      yield* Queue.take(changes).pipe(Effect.andThen(Effect.sleep(SETTLE)), Effect.timeoutOption(patience))
    }).pipe(Effect.scoped, Effect.forever)
  })

/** Says so when the certificate has run out: it is served all the same, as nothing better is there. */
export const warnIfExpired = (credentials: Credentials): Effect.Effect<void> =>
  Effect.flatMap(Clock.currentTimeMillis, (now) =>
    now > credentials.validUntil
      ? Effect.logError(`the proxy's certificate has run out: ${credentials.summary}`)
      : Effect.void
  )

/** A directory that cannot be watched is read at the backstop's pace. */
const watched = (directory: string, notice: () => void): Effect.Effect<void, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const watcher = watch(directory, notice)
        watcher.on("error", () => watcher.close())
        return watcher
      },
      catch: () => undefined
    }).pipe(Effect.orElseSucceed(() => undefined)),
    (watcher) => Effect.sync(() => watcher?.close())
  ).pipe(Effect.asVoid)
