/** What goes wrong with files, in sentences. */
import { Effect, Schema } from "effect"

/** An operation on a file failed. `reason` is a clause that names the path, for a longer sentence. */
export class FileProblem extends Schema.TaggedError<FileProblem>()("FileProblem", {
  path: Schema.String,
  /** The system's name of the error, for instance `ENOSPC`; empty when it has none. */
  code: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

const reasons: Readonly<Record<string, (path: string) => string>> = {
  ENOSPC: (path) => `the disk that holds ${path} is full`,
  EDQUOT: (path) => `the disk quota for ${path} is used up`,
  ENOENT: (path) => `${path} does not exist`,
  ENOTDIR: (path) => `a part of the path ${path} is not a directory`,
  EISDIR: (path) => `${path} is a directory`,
  EEXIST: (path) => `${path} exists already`,
  EACCES: (path) => `the daemon has no permission to use ${path}`,
  EPERM: (path) => `the daemon is not allowed to change ${path}`,
  EROFS: (path) => `${path} is on a read-only filesystem`,
  EIO: (path) => `the disk gave an I/O error at ${path}`,
  EFBIG: (path) => `${path} would be larger than its filesystem allows`,
  ENAMETOOLONG: (path) => `the path ${path} is too long`,
  ELOOP: (path) => `${path} is a symbolic link, which is not followed here or leads in a circle`,
  EMFILE: () => "the daemon has no file descriptor left (LimitNOFILE of its unit)",
  ENFILE: () => "the host has no file descriptor left (fs.file-max)"
}

const codeOf = (error: unknown): string =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : ""

/** The problem that an error of Node's file functions stands for. */
export const fileProblem = (path: string, error: unknown): FileProblem => {
  const code = codeOf(error)
  const reason = reasons[code]?.(path)
  return new FileProblem({
    path,
    code,
    reason: reason ?? `${path} cannot be used: ${error instanceof Error ? error.message : String(error)}`
  })
}

/** Runs one of Node's file functions; `path` is what the sentence names when it fails. */
export const onFile = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, FileProblem> =>
  Effect.tryPromise({ try: run, catch: (error) => fileProblem(path, error) })

/** Runs it, and takes it for granted when what it is about does not exist. */
export const ifPresent = <A, R>(
  effect: Effect.Effect<A, FileProblem, R>
): Effect.Effect<A | undefined, FileProblem, R> =>
  Effect.catchIf(
    effect,
    (problem) => problem.code === "ENOENT",
    () => Effect.undefined
  )
