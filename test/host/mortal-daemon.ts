/** A daemon of a host that dies by itself at a point of its work: `crashing-daemon.ts` as a child process. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { join } from "node:path"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"

/** Starts a daemon that dies at the points (of `CRASH_AT`); killed with the scope when it has not. */
export const mortalDaemon = Effect.fnUntraced(function* (host: LocalHost, points: string) {
  const daemon = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, [join(import.meta.dirname, "crashing-daemon.ts")], {
        env: { ...process.env, NIBRUNNER_CONFIG: host.config, CRASH_AT: points },
        stdio: ["ignore", "pipe", "pipe"]
      })
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
  let words = ""
  for (const stream of [daemon.stdout, daemon.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      words += chunk.toString("utf8")
    })
  }
  const end = once(daemon, "close")
  return {
    /** What it has said so far. */
    words: () => words,
    /** Waits until it has died at the last point; fails when it ends otherwise. */
    died: Effect.promise(() => end).pipe(
      Effect.timeout("3 minutes"),
      Effect.map(([code, signal]) =>
        assert.strictEqual(signal, "SIGKILL", `it ended with ${code} before it came to ${points}: ${words}`)
      )
    )
  }
})
