/** The host's notes for one who only looks: nothing is written, beside a running daemon or without one. */
import * as fs from "node:fs/promises"
import { Effect, Option } from "effect"
import { type HostState, HostStateError } from "../../src/services/HostState.ts"
import type { HostNotes } from "../../src/services/HostView.ts"
import { type FileProblem, ifPresent, onFile } from "../files/problem.ts"
import { databasePath, openDatabaseReadOnly } from "./database.ts"
import { hostState } from "./sqlite.ts"

const LOOKING = "look at them"

const exists = (file: string): Effect.Effect<boolean, HostStateError> =>
  ifPresent(onFile(file, () => fs.stat(file))).pipe(
    Effect.map((found) => found !== undefined),
    Effect.mapError(
      ({ code, reason }: FileProblem) =>
        new HostStateError({
          operation: LOOKING,
          cause: new Error(
            code === "EACCES" ? `${file} may be read by the daemon's user alone, or by root` : reason
          )
        })
    )
  )

/** Looks at the notes as they are at one moment; none where no daemon has run. */
const look = <A>(
  stateDir: string,
  read: (notes: HostState["Service"]) => Effect.Effect<A, HostStateError>
): Effect.Effect<Option.Option<A>, HostStateError> =>
  Effect.gen(function* () {
    const file = databasePath(stateDir)
    if (!(yield* exists(file))) return Option.none()
    // A daemon that has the notes open, or was killed, has left this file beside them.
    const still = Effect.map(exists(`${file}-wal`), (beside) => !beside)
    const wasStill = yield* still
    const seen = yield* openDatabaseReadOnly(stateDir, wasStill).pipe(
      Effect.flatMap((database) => read(hostState(database))),
      Effect.scoped
    )
    // A daemon that was started meanwhile may have changed the file under this look.
    return wasStill && !(yield* still) ? yield* look(stateDir, read) : Option.some(seen)
  })

/** All the notes that a plan is made of. */
export const lookAtNotes = (stateDir: string): Effect.Effect<Option.Option<HostNotes>, HostStateError> =>
  look(stateDir, ({ apps, document, volumes }) => Effect.all({ document, apps, volumes }))

/** The document in force alone. */
export const lookAtDocument = (stateDir: string) =>
  look(stateDir, ({ document }) => document).pipe(Effect.map(Option.flatten))
