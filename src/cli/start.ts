/** `nibrunnerd start`: has systemd run the host. */
import { Effect, Path } from "effect"
import { Command, Flag } from "effect/cli"
import { configFile, readConfigAt } from "./config-file.ts"
import { paragraphs } from "./help.ts"
import type { OpenInstaller } from "./host-access.ts"
import { withReasons } from "./host-layout.ts"

/** @param open brings what does it; `bin/` knows how */
export const start = <E, R>(open: OpenInstaller<E, R>) =>
  Command.make(
    "start",
    {
      force: Flag.Boolean("force").pipe(
        Flag.withDefault(false),
        Flag.withDescription("Replace files that install has not written.")
      )
    },
    Effect.fn(function* ({ force }) {
      const path = yield* Path.Path
      const file = path.resolve(yield* configFile)
      const { config } = yield* readConfigAt(file)
      const { Installer } = yield* Effect.promise(() => import("../services/Installer.ts"))
      yield* Effect.flatMap(Installer, (installer) =>
        installer.start({ configFile: file, config, force })
      ).pipe(withReasons, Effect.provide(open()))
    })
  ).pipe(
    Command.withShortDescription("Apply the configuration, and have systemd run the host."),
    Command.withDescription(
      paragraphs(
        "Do what install does, then have systemd start what does not run, and restart what was started with something older: another configuration, other secrets, another program. What runs with all of it as it is now is left alone. microVMs run on through a restart of the daemon.",
        "Refused with every reason, and nothing started, where a secret that is needed has no value in host.env, a file of TLS cannot be read, or an address to listen on is not this host's."
      )
    ),
    Command.withExamples([{ command: "nibrunnerd start", description: "After each change of config.toml" }])
  )
