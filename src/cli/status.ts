/** `nibrunnerd status`: what the host reports. */
import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { readConfig } from "./config-file.ts"
import { paragraphs } from "./help.ts"
import type { OpenView } from "./host-access.ts"

/** @param view brings the host's notes, which hold the hostnames; `bin/` knows how */
export const status = <E, R>(view: OpenView<E, R>) =>
  Command.make(
    "status",
    {
      json: Flag.Boolean("json").pipe(
        Flag.withDefault(false),
        Flag.withDescription("Print the report as it stands in reported.json, on one line.")
      ),
      watch: Flag.Boolean("watch").pipe(
        Flag.withAlias("w"),
        Flag.withDefault(false),
        Flag.withDescription("Show it anew whenever it changes, until Ctrl-C.")
      )
    },
    Effect.fn(function* ({ json, watch }) {
      const { config } = yield* readConfig
      const { showStatus, watchStatus } = yield* Effect.promise(() => import("./show-status.ts"))
      const show = watch ? watchStatus : showStatus
      yield* show(config.paths.state_dir, json).pipe(Effect.provide(view(config)))
    })
  ).pipe(
    Command.withShortDescription("Show what this host reports of its apps and volumes."),
    Command.withDescription(
      paragraphs(
        "Show what this host reports of its apps: their state and since when, the memory in use in the guest, restarts, hostnames, and why an app is not as the document asks. Volumes, checkpoints and exports are shown when something is to be said of them.",
        "On a terminal lines are cut to its width (hostnames first) and states are coloured, unless NO_COLOR is set; elsewhere all is plain and whole. Exits with 1 when there is no report."
      )
    ),
    Command.withExamples([
      { command: "nibrunnerd status", description: "How the apps of this host are" },
      { command: "nibrunnerd status --watch", description: "The same, kept up to date" },
      {
        command: "nibrunnerd status --json | jq -r '.instances[] | select(.state == \"failed\") | .appId'",
        description: "The apps that have failed"
      }
    ])
  )
