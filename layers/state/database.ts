/** The database of the host's notes: opened, brought up to date, and written in transactions that are on the disk. */
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import { pathToFileURL } from "node:url"
import { type Cause, Deferred, Effect, Exit, Fiber, Queue, type Scope } from "effect"
import { HostStateError } from "../../src/services/HostState.ts"
import { makeDirectory, makePrivateFile } from "../files/durable.ts"
import { migrations } from "./schema.ts"

/** Milliseconds. Only a reader that looks at the notes from outside can hold the database, and it never does for long. */
const BUSY_TIMEOUT = 5000

const OPENING = "open"

export const databasePath = (stateDir: string): string => path.join(stateDir, "state", "state.db")

const attempt = <A>(operation: string, run: () => A): Effect.Effect<A, HostStateError> =>
  Effect.try({ try: run, catch: (cause) => new HostStateError({ operation, cause }) })

export interface Database {
  /** Reads in the committed state. */
  readonly read: <A>(operation: string, read: (db: DatabaseSync) => A) => Effect.Effect<A, HostStateError>
  /**
   * Writes in a transaction and succeeds when it is on the disk. Writes are done in the order in which they were
   * asked for; those that wait at the same time share one flush, and one that fails undoes nothing but itself.
   */
  readonly write: (
    operation: string,
    write: (db: DatabaseSync) => void
  ) => Effect.Effect<void, HostStateError>
}

/** Opens the database for the daemon, makes it if there is none, and brings its tables up to date. */
export const openDatabase = (stateDir: string): Effect.Effect<Database, HostStateError, Scope.Scope> =>
  Effect.gen(function* () {
    const file = databasePath(stateDir)
    const directory = path.dirname(file)
    yield* makeDirectory(directory, 0o700).pipe(
      // SQLite gives its other files the mode of this one.
      Effect.andThen(makePrivateFile(file)),
      Effect.catchTag("FileProblem", (cause) =>
        Effect.fail(new HostStateError({ operation: OPENING, cause }))
      )
    )
    const db = yield* connect(file, { timeout: BUSY_TIMEOUT })
    yield* attempt(OPENING, () => {
      db.exec("PRAGMA journal_mode = WAL")
      // In WAL mode a commit is only on the disk with FULL: NORMAL may lose the last ones with the power.
      db.exec("PRAGMA synchronous = FULL")
      migrate(db, file)
    })
    const write = yield* makeWriter(db)
    return { read: (operation, read) => attempt(operation, () => read(db)), write }
  })

/**
 * Opens the notes to look at them, beside a daemon that runs or not, and begins a transaction: all that is read is
 * of one moment. Fails when there are no notes.
 *
 * @param still nobody has the notes open. SQLite then makes no files beside them, and sees none of what a daemon
 *   that is started meanwhile writes.
 */
export const openDatabaseReadOnly = (
  stateDir: string,
  still: boolean
): Effect.Effect<Database, HostStateError, Scope.Scope> =>
  Effect.gen(function* () {
    const file = databasePath(stateDir)
    const url = pathToFileURL(file)
    if (still) url.searchParams.set("immutable", "1")
    const db = yield* connect(url, { readOnly: true, timeout: BUSY_TIMEOUT })
    yield* attempt(OPENING, () => {
      db.exec("BEGIN")
      const version = versionOf(db)
      if (version !== migrations.length) throw new Error(wrongVersion(file, version))
    })
    return {
      read: (operation, read) => attempt(operation, () => read(db)),
      write: (operation) =>
        new HostStateError({ operation, cause: new Error("the notes were opened to be read only") })
    }
  })

const connect = (
  file: string | URL,
  options: { readonly readOnly?: boolean; readonly timeout: number }
): Effect.Effect<DatabaseSync, HostStateError, Scope.Scope> =>
  Effect.acquireRelease(
    attempt(OPENING, () => new DatabaseSync(file, options)),
    (db) => Effect.sync(() => db.close())
  )

const versionOf = (db: DatabaseSync): number => Number(db.prepare("PRAGMA user_version").get()?.user_version)

const wrongVersion = (file: string, version: number): string =>
  version > migrations.length
    ? `${file} was written by a newer nibrunner (version ${version} of its tables, this one knows ${migrations.length})`
    : `${file} has version ${version} of its tables; a daemon of this version brings it up to ${migrations.length}`

const migrate = (db: DatabaseSync, file: string): void => {
  const version = versionOf(db)
  if (version > migrations.length) throw new Error(wrongVersion(file, version))
  for (const [index, step] of migrations.entries()) {
    if (index >= version) transaction(db, () => db.exec(`${step}; PRAGMA user_version = ${index + 1}`))
  }
}

const transaction = (db: DatabaseSync, run: () => void): void => {
  db.exec("BEGIN IMMEDIATE")
  try {
    run()
    db.exec("COMMIT")
  } catch (error) {
    if (db.isTransaction) db.exec("ROLLBACK")
    throw error
  }
}

interface Write {
  readonly operation: string
  readonly run: (db: DatabaseSync) => void
  readonly done: Deferred.Deferred<void, HostStateError>
}

/**
 * One fiber writes: it takes all writes that wait, since a flush costs the same for one as for a hundred. It is
 * never interrupted; when the scope closes it writes what was asked for and ends.
 */
const makeWriter = (db: DatabaseSync): Effect.Effect<Database["write"], never, Scope.Scope> =>
  Effect.gen(function* () {
    const queue = yield* Queue.unbounded<Write, Cause.Done>()
    const writeForever = Queue.takeAll(queue).pipe(
      Effect.flatMap((writes) =>
        Effect.sync(() => {
          for (const [write, exit] of commit(db, writes)) Deferred.doneUnsafe(write.done, exit)
        })
      ),
      Effect.forever
    )
    yield* Effect.acquireRelease(Effect.forkDetach(writeForever), (fiber) =>
      Queue.end(queue).pipe(Effect.andThen(Fiber.await(fiber)))
    )
    return (operation, run) =>
      Effect.suspend(() => {
        const done = Deferred.makeUnsafe<void, HostStateError>()
        return Queue.offerUnsafe(queue, { operation, run, done })
          ? Deferred.await(done)
          : Effect.fail(new HostStateError({ operation, cause: new Error("the notes are closed") }))
      }).pipe(Effect.uninterruptible)
  })

const commit = (
  db: DatabaseSync,
  writes: ReadonlyArray<Write>
): ReadonlyArray<readonly [Write, Exit.Exit<void, HostStateError>]> => {
  const failed = ({ operation }: Write, cause: unknown) => Exit.fail(new HostStateError({ operation, cause }))
  const outcomes = new Map<Write, Exit.Exit<void, HostStateError>>()
  try {
    transaction(db, () => {
      for (const write of writes) {
        db.exec("SAVEPOINT one")
        try {
          write.run(db)
          outcomes.set(write, Exit.void)
        } catch (cause) {
          db.exec("ROLLBACK TO one")
          outcomes.set(write, failed(write, cause))
        }
        db.exec("RELEASE one")
      }
    })
  } catch (cause) {
    return writes.map((write) => [write, failed(write, cause)] as const)
  }
  return [...outcomes]
}
