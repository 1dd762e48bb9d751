/**
 * A second ZeroFS that serves a checkpoint, read-only. It is always started with `--checkpoint`: a second one that writes
 * would destroy what the first has written.
 */
import * as fs from "node:fs/promises"
import { Deferred, Effect, Ref, type Scope, Stream } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"
import type { ZerofsSection } from "../../../src/config/schema.ts"
import { readerSocket } from "../../../src/volume/zerofs-config.ts"
import { makeDirectory, removeFile } from "../../files/durable.ts"
import { lastWord, notRun, zerofsEnvironment } from "./command.ts"
import { openExport } from "./nbd.ts"
import { within } from "./socket.ts"

/** A reader reads its index from the store before it serves. */
const START_LIMIT_SECONDS = 120
const ASK_EVERY_MS = 200
const ASK_LIMIT_SECONDS = 30
/** Characters of what the reader says that are kept for the message. */
const KEPT = 8192

/** Why a checkpoint cannot be read: a clause. */
export interface NotServed {
  readonly message: string
}

/**
 * Serves the checkpoint until the scope ends, and succeeds once it is asked for the export and answers. Its socket is new:
 * nobody else can be what answers there. It dies with the daemon.
 */
export const serveCheckpoint = Effect.fnUntraced(function* (
  zerofs: ZerofsSection,
  checkpoint: string,
  exportName: string
): Effect.fn.Return<
  { readonly socketPath: string },
  NotServed,
  Scope.Scope | ChildProcessSpawner.ChildProcessSpawner
> {
  const socketPath = readerSocket(zerofs)
  const refuse = (message: string) => Effect.fail<NotServed>({ message })
  yield* makeDirectory(zerofs.checkpoint_runtime_dir, 0o700)
  yield* Effect.acquireRelease(removeFile(socketPath), () => Effect.ignore(removeFile(socketPath)))
  yield* Effect.tryPromise({
    try: () => fs.access(zerofs.checkpoint_config_file),
    catch: () => ({
      message: `${zerofs.checkpoint_config_file} cannot be read: nibrunnerd install writes it`
    })
  })

  const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
  const child = yield* spawner
    .spawn(
      ChildProcess.make(
        "setpriv",
        [
          ...["--pdeathsig", "KILL", "--", zerofs.binary],
          ...["run", "--config", zerofs.checkpoint_config_file, "--checkpoint", checkpoint]
        ],
        { stdin: "ignore", env: zerofsEnvironment(), forceKillAfter: "5 seconds" }
      )
    )
    .pipe(Effect.catch((error) => refuse(notRun("setpriv", error))))
  const said = yield* Ref.make("")
  const ended = yield* Deferred.make<string>()
  yield* Stream.merge(child.stdout, child.stderr).pipe(
    Stream.decodeText(),
    Stream.runForEach((piece) => Ref.update(said, (kept) => (kept + piece).slice(-KEPT))),
    Effect.ignore,
    Effect.andThen(Ref.get(said)),
    Effect.flatMap((words) => Deferred.succeed(ended, lastWord(words))),
    Effect.forkScoped
  )
  yield* Effect.addFinalizer(() =>
    Effect.flatMap(Ref.get(said), (words) =>
      Effect.logDebug(`the reader of checkpoint ${checkpoint} said: ${words.slice(-2048)}`)
    )
  )

  const asked = Effect.scoped(openExport(socketPath, exportName)).pipe(
    within(ASK_LIMIT_SECONDS, socketPath),
    Effect.as(true),
    Effect.catchTag("NoAnswer", () => Effect.succeed(false)),
    Effect.catchTag("NoExport", () => refuse(`volume ${exportName} is not in it`))
  )
  const serving = Effect.gen(function* () {
    while (!(yield* asked)) yield* Effect.sleep(ASK_EVERY_MS)
  })
  yield* Effect.raceFirst(
    serving,
    Effect.flatMap(Deferred.await(ended), (word) => refuse(`its reader ended: ${word}`))
  ).pipe(
    Effect.timeoutOrElse({
      duration: START_LIMIT_SECONDS * 1000,
      orElse: () =>
        Effect.flatMap(Ref.get(said), (words) =>
          refuse(`its reader did not serve it within ${START_LIMIT_SECONDS} s: ${lastWord(words)}`)
        )
    })
  )
  return { socketPath }
})
