/** `nibrunnerd start`: installs, and has systemd start what does not run, and restart what runs with something older. */
import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { hostEnvFile } from "../../src/config/host-env.ts"
import type { HostConfig } from "../../src/config/schema.ts"
import { DAEMON_UNIT, mountUnitName, UNIT_DIRECTORY, ZEROFS_UNIT } from "../../src/install/units.ts"
import { HostNotReady, InstallFailed, type InstallRequest } from "../../src/services/Installer.ts"
import { ifPresent, onFile } from "../files/problem.ts"
import { installHost, type Program } from "./install.ts"
import { type Place, placed } from "./place.ts"
import { reasonsNotToStart } from "./readiness.ts"
import { note } from "./say.ts"
import {
  daemonReload,
  enable,
  type Refused,
  resetFailed,
  restartUnit,
  startUnit,
  unitState
} from "./systemctl.ts"

/** A unit, and the files that it is started with. */
interface Unit {
  readonly name: string
  readonly inputs: ReadonlyArray<string>
  /** What is changed in these reaches it only when it is restarted by hand: a restart is felt by every app. */
  readonly softInputs: ReadonlyArray<string>
  /** Whether the host runs without it. */
  readonly optional: boolean
}

const unitFile = (name: string) => `${UNIT_DIRECTORY}/${name}`

const unitsOf = (
  config: HostConfig,
  configFile: string,
  programFiles: ReadonlyArray<string>
): ReadonlyArray<Unit> => {
  const { paths, proxy, volumes } = config
  const envFile = hostEnvFile(configFile)
  const tls = proxy?.http?.tls
  const { zerofs } = volumes
  return [
    ...(zerofs === undefined
      ? []
      : [
          {
            name: ZEROFS_UNIT,
            inputs: [unitFile(ZEROFS_UNIT), zerofs.config_file, zerofs.binary],
            softInputs: [envFile],
            optional: false
          },
          {
            name: mountUnitName(zerofs),
            inputs: [unitFile(mountUnitName(zerofs))],
            softInputs: [],
            optional: true
          }
        ]),
    {
      name: DAEMON_UNIT,
      inputs: [
        unitFile(DAEMON_UNIT),
        configFile,
        envFile,
        `${paths.guest_image_dir}/manifest.json`,
        ...programFiles,
        ...(tls === undefined ? [] : [tls.certificate, tls.key]),
        ...(tls?.client_ca === undefined ? [] : [tls.client_ca.certificate])
      ],
      softInputs: [],
      optional: false
    }
  ]
}

/** Those of the files that became what they are after that moment. A renamed or copied file has a new one too. */
const changedSince = (place: Place, files: ReadonlyArray<string>, moment: number) =>
  Effect.filter(files, (file) => {
    const at = placed(place, file)
    return ifPresent(onFile(at, () => fs.stat(at))).pipe(
      Effect.map((found) => found !== undefined && found.ctimeMs > moment)
    )
  })

/** Brings a unit up, and says how it is. Gives whether it runs. */
const bringUp = Effect.fnUntraced(function* (place: Place, { inputs, name, softInputs }: Unit) {
  const before = yield* unitState(name)
  const runs = before.state === "active"
  const startedAt = before.startedAt ?? 0
  const changed = runs ? yield* changedSince(place, inputs, startedAt) : []
  if (runs && changed.length === 0) {
    yield* note(`${name}: runs, and nothing of what it was started with has changed`)
    const soft = yield* changedSince(place, softInputs, startedAt)
    if (soft.length > 0)
      yield* note(
        `${name} was started before ${soft.join(", ")} was changed and keeps what it read: systemctl restart ${name}, ` +
          "which every app waits for, has it read anew"
      )
    return
  }
  if (before.state === "failed") yield* resetFailed(name)
  yield* runs ? restartUnit(name) : startUnit(name)
  const after = yield* unitState(name)
  if (after.state !== "active")
    return yield* Effect.fail<Refused>({ reason: `it is ${after.state || "not known to systemd"}` })
  yield* note(runs ? `${name}: restarted, because of ${changed.join(", ")}` : `${name}: started`)
})

/** Starts the units of a host that is laid out, and says what became of each. */
const startUnits = Effect.fnUntraced(function* (place: Place, units: ReadonlyArray<Unit>) {
  yield* daemonReload
  // A mount is asked for by ZeroFS's unit.
  yield* enable(units.filter(({ optional }) => !optional).map(({ name }) => name))
  const failed: Array<string> = []
  for (const unit of units) {
    // What comes and goes with a unit that has failed would only be waited for.
    if (unit.optional && failed.length > 0) continue
    const reason = yield* bringUp(place, unit).pipe(
      Effect.as(undefined),
      Effect.catch((error) => Effect.succeed("reason" in error ? error.reason : String(error)))
    )
    if (reason === undefined) continue
    yield* note(
      `${unit.name}: ${unit.optional ? "not active, which the host runs without" : "failed"}: ${reason}`
    )
    if (!unit.optional) failed.push(unit.name)
  }
  return failed
})

/** Refused before anything is started where the host is not ready. */
export const startHost = Effect.fnUntraced(function* (
  program: Program & { readonly files: ReadonlyArray<string> },
  place: Place,
  request: InstallRequest
) {
  const { configFile } = request
  const { config } = yield* installHost(program, place, request, { steps: false })
  const reasons = yield* reasonsNotToStart(place, config, configFile)
  if (reasons.length > 0) return yield* new HostNotReady({ refused: "nothing was started", reasons })
  const units = unitsOf(config, configFile, program.files)
  const failed = yield* startUnits(place, units)
  if (failed.length > 0) {
    return yield* new InstallFailed({
      reason:
        `${failed.join(" and ")} did not start; their last words: ` +
        `journalctl -n 50 ${units.map(({ name }) => `-u ${name}`).join(" ")}`
    })
  }
  yield* note(
    `The host runs. Its document is ${config.paths.desired_state_file}; nibrunnerd status shows what becomes of it.`
  )
})
