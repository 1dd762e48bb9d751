/** `nibrunnerd install`: lays a host out. */
import { Effect, Option, Path } from "effect"
import { Command, Flag } from "effect/cli"
import { configFile } from "./config-file.ts"
import { paragraphs } from "./help.ts"
import type { OpenInstaller } from "./host-access.ts"
import { configIfPresent, withReasons } from "./host-layout.ts"

/** @param open brings what does it; `bin/` knows how */
export const install = <E, R>(open: OpenInstaller<E, R>) =>
  Command.make(
    "install",
    {
      force: Flag.Boolean("force").pipe(
        Flag.withDefault(false),
        Flag.withDescription("Replace files that install has not written. config.toml and host.env stay.")
      ),
      from: Flag.Path("from").pipe(
        Flag.optional,
        Flag.withDescription("A directory with a built guest image, which is verified and copied in.")
      ),
      root: Flag.Path("root").pipe(
        Flag.optional,
        Flag.withDescription(
          "Lay everything out below this directory, and leave this machine as it is: for packages and images."
        )
      )
    },
    Effect.fn(function* ({ force, from, root }) {
      const path = yield* Path.Path
      const file = path.resolve(yield* configFile)
      const below = Option.getOrUndefined(Option.map(root, (directory) => path.resolve(directory)))
      const found = yield* configIfPresent(below === undefined ? file : path.join(below, file))
      const { Installer } = yield* Effect.promise(() => import("../services/Installer.ts"))
      yield* Effect.flatMap(Installer, (installer) =>
        installer.install({
          configFile: file,
          config: found?.config,
          // the root of this machine is this machine
          root: below === "/" ? undefined : below,
          force,
          from: Option.getOrUndefined(Option.map(from, (directory) => path.resolve(directory)))
        })
      ).pipe(withReasons, Effect.provide(open()))
    })
  ).pipe(
    Command.withShortDescription("Lay this host out as its configuration says."),
    Command.withDescription(
      paragraphs(
        "Lay this host out: directories, the kernel's settings and modules, units of systemd, for volumes on ZeroFS its configuration and account, and the ids that microVMs run as. Where there is no config.toml a starter one is written, measured for this machine, and beside it host.env for the secrets. Neither is ever written again.",
        "It says each change, changes nothing that is right already, and starts nothing. Everything that is missing is said at once, each with its remedy, before anything is changed. A file that it has not written itself is not replaced without --force."
      )
    ),
    Command.withExamples([
      {
        command: "nibrunnerd install --from .nibrunner/guest",
        description: "With the guest image that was built here"
      },
      { command: "nibrunnerd install --root ./package", description: "Everything below a directory" }
    ])
  )
