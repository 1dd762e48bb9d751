/** Laying a host out, and starting it. */
import { Context, type Effect, Schema } from "effect"
import type { HostConfig } from "../config/schema.ts"

/** What is to be laid out. */
export interface InstallRequest {
  /** The configuration's path on the host. `host.env` lies beside it. */
  readonly configFile: string
  /** What it says; undefined where there is none, and a starter configuration is to be written. */
  readonly config: HostConfig | undefined
  /** The directory that stands for the host's root; undefined: this machine itself. */
  readonly root: string | undefined
  /** Replaces files that are not ours. */
  readonly force: boolean
  /** A directory with a guest image that is to be copied in. */
  readonly from: string | undefined
}

/** What a host is like after `install`. */
export interface Installed {
  readonly config: HostConfig
  /** How many things were changed. Each has been said. */
  readonly changes: number
}

/** The host cannot be laid out, or not be started, as it is: nothing was done for it. Each reason has its remedy. */
export class HostNotReady extends Schema.TaggedError<HostNotReady>()("HostNotReady", {
  /** What is refused, as a clause: `nothing was installed`. */
  refused: Schema.String,
  reasons: Schema.Array(Schema.String)
}) {
  override get message() {
    return `${this.refused}: ${this.reasons.join("; ")}`
  }
}

/** It was begun, and failed on the way. */
export class InstallFailed extends Schema.TaggedError<InstallFailed>()("InstallFailed", {
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

/** Both say each change on stdout as they make it. */
export class Installer extends Context.Service<
  Installer,
  {
    readonly install: (request: InstallRequest) => Effect.Effect<Installed, HostNotReady | InstallFailed>
    /** Installs, then starts or restarts the units whose inputs have changed. */
    readonly start: (
      request: Pick<InstallRequest, "config" | "configFile" | "force">
    ) => Effect.Effect<void, HostNotReady | InstallFailed>
  }
>()("nibrunner/services/Installer") {}
