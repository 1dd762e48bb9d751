/** What programs print, one file per app. */
import { Context, type Effect, type Scope } from "effect"
import type { AppId } from "../document/schema.ts"

/** One app's log during one conversation with its guest. */
export interface AppLog {
  /** A piece of output as it came; cut into lines here. A line is at most 64 KiB; invalid UTF-8 is replaced. */
  readonly output: (stream: "stdout" | "stderr", bytes: Uint8Array) => Effect.Effect<void>
  /** So many bytes were lost here. */
  readonly gap: (bytes: number) => Effect.Effect<void>
  /** A line of the host's own, on stderr, marked as such. */
  readonly note: (text: string) => Effect.Effect<void>
}

export class AppLogs extends Context.Service<
  AppLogs,
  {
    /**
     * Opens the app's log for one session. One record a line: time (UTC, ms), stream, session and sequence,
     * text. An unfinished line is written after 250 ms of quiet and when the scope closes. A log that cannot be
     * written never stops an app: it is said in the daemon's log.
     */
    readonly open: (appId: AppId, sessionId: string) => Effect.Effect<AppLog, never, Scope.Scope>
    /** Deletes the app's log; no error when there is none. */
    readonly forget: (appId: AppId) => Effect.Effect<void>
  }
>()("nibrunner/services/AppLogs") {}
