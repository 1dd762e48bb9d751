/** The directories that a daemon has to itself. */
import { Context, Effect, Schema } from "effect"

export interface OwnDirectory {
  /** The key of the configuration that names it. */
  readonly key:
    | "paths.state_dir"
    | "paths.runtime_dir"
    | "paths.snapshot_dir"
    | "volumes.zerofs.checkpoint_runtime_dir"
  /** Absolute. */
  readonly path: string
}

/** Another daemon has the directory. */
export class DirectoryInUse extends Schema.TaggedError<DirectoryInUse>()("DirectoryInUse", {
  directory: Schema.String,
  key: Schema.String,
  pid: Schema.optionalKey(Schema.Int)
}) {
  override get message() {
    const who = this.pid === undefined ? "another daemon" : `the daemon with pid ${this.pid}`
    return `${who} is using ${this.directory} (${this.key}); two daemons must not share it`
  }
}

/** It cannot be told, or made sure, that no other daemon has the directory. */
export class LockUnusable extends Schema.TaggedError<LockUnusable>()("LockUnusable", {
  directory: Schema.String,
  key: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `${this.directory} (${this.key}) cannot be locked: ${this.reason}`
  }
}

/** Two keys name one directory, as a symbolic link or a bind mount may have it. */
export class DirectoryNamedTwice extends Schema.TaggedError<DirectoryNamedTwice>()("DirectoryNamedTwice", {
  directory: Schema.String,
  keys: Schema.Tuple([Schema.String, Schema.String])
}) {
  override get message() {
    const [first, second] = this.keys
    return `${second} leads to ${this.directory}, as does ${first}: each needs a directory of its own`
  }
}

/** By default a daemon has none that could be lost. */
export const HostDirectories = Context.Reference<{
  /**
   * Those that are not the directories any more that the daemon began with: removed, moved away, or covered by something
   * else of the same name. Cheap enough to be asked before each report.
   */
  readonly lost: Effect.Effect<ReadonlyArray<OwnDirectory>>
}>("nibrunner/services/HostDirectories", { defaultValue: () => ({ lost: Effect.succeed([]) }) })
