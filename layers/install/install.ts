/** `nibrunnerd install`: everything is looked at first, all that is wrong is said at once, and then the host is laid out. */
import * as fs from "node:fs/promises"
import { Effect, Result } from "effect"
import { decodeConfig } from "../../src/config/decode.ts"
import { hostEnvFile, namesSetIn, neededVariables } from "../../src/config/host-env.ts"
import type { HostConfig } from "../../src/config/schema.ts"
import { unsupportedIn } from "../../src/config/unsupported.ts"
import { type Capacity, fittingApps, measured, verdictOnApps } from "../../src/install/capacity.ts"
import type { HostFile } from "../../src/install/generated.ts"
import { newHostEnv } from "../../src/install/host-env.ts"
import { hostDirectories, hostFiles, removableFiles, versionsFile } from "../../src/install/layout.ts"
import { leftToOthers, missingProgram } from "../../src/install/prerequisites.ts"
import { starterConfig } from "../../src/install/starter.ts"
import { canBeStarted } from "../../src/install/systemd-text.ts"
import { ZEROFS_ACCOUNT_FILE, ZEROFS_USER } from "../../src/install/zerofs.ts"
import { HostNotReady, InstallFailed, type InstallRequest } from "../../src/services/Installer.ts"
import { onFile } from "../files/problem.ts"
import { zerofsVersion } from "../volume/zerofs/facts.ts"
import { measureCapacity } from "./capacity.ts"
import { runProgram } from "./command.ts"
import { ensureDirectory, planFile, removeGenerated, textOf, writeFile } from "./files.ts"
import { planIds, setAside } from "./ids.ts"
import { copyImage, verifiedImage } from "./image.ts"
import { applyToKernel } from "./kernel.ts"
import { type Place, placed } from "./place.ts"
import { hasKvm, missingPrograms } from "./prerequisites.ts"
import { type Changes, makeChanges, note } from "./say.ts"

export interface Program {
  /** The launcher `nibrunnerd` that systemd is to start. */
  readonly launcher: string
  readonly version: string
}

const STARTER_STATE = "/var/lib/nibrunner"

/** The configuration, or a starter one and its text. */
const configurationFor = Effect.fnUntraced(function* (place: Place, request: InstallRequest) {
  const { config, configFile } = request
  const capacity: Capacity = yield* measureCapacity(place, {
    directory: config?.paths.snapshot_dir ?? STARTER_STATE,
    zerofs: config?.volumes.zerofs,
    isNew: config === undefined
  })
  if (config !== undefined) return { config, capacity, starter: undefined }
  const starter = starterConfig(fittingApps(capacity), measured(capacity))
  const decoded = decodeConfig(starter, configFile)
  // The starter is ours: one that is refused is a fault of the program.
  if (Result.isFailure(decoded)) return yield* Effect.die(decoded.failure)
  return { config: decoded.success, capacity, starter }
})

/** A program in the tree that is laid out will be at its root. */
const launcherOnHost = ({ root }: Place, launcher: string): string =>
  root !== "" && launcher.startsWith(`${root}/`) ? launcher.slice(root.length) : launcher

const oneLine = (text: string): string => text.replaceAll(/\s+/gu, " ")

/** Why the guest image is none that boots; undefined when it is one. */
const imageProblem = (place: Place, { from }: InstallRequest, { paths }: HostConfig) =>
  verifiedImage(from ?? placed(place, paths.guest_image_dir)).pipe(
    Effect.as(undefined),
    Effect.catch((error) => Effect.succeed(oneLine(error.message)))
  )

/** What is to be done about it on this machine, or below the directory that stands for another. */
const imageRemedy = ({ from, root }: InstallRequest, { paths }: HostConfig, problem: string): string => {
  if (from !== undefined) return problem
  return root === undefined
    ? `${problem}; nibrunnerd install --from DIR copies a built image to ${paths.guest_image_dir} (paths.guest_image_dir)`
    : `nibrunnerd install --root ${root} --from DIR, with the directory of a built guest image: nothing boots as it is, because ${problem}`
}

const makeAccount = Effect.fnUntraced(function* (place: Place, changes: Changes) {
  const passwd = (yield* textOf(place, "/etc/passwd")) ?? ""
  if (passwd.split("\n").some((line) => line.startsWith(`${ZEROFS_USER}:`))) return
  const made = yield* runProgram("systemd-sysusers", [placed(place, ZEROFS_ACCOUNT_FILE)], 60)
  if (made.code !== 0) {
    return yield* new InstallFailed({
      reason: `the account ${ZEROFS_USER} could not be made: systemd-sysusers: ${made.lastWord}`
    })
  }
  yield* changes.made(`made the account ${ZEROFS_USER}`)
})

const readableByOthers = (place: Place, file: string) => {
  const at = placed(place, file)
  return Effect.map(
    onFile(at, () => fs.stat(at)),
    ({ mode }) => (mode & 0o077) !== 0
  )
}

/** @param lacking what the host does not run without; @param missing the variables that have no value */
const nextSteps = Effect.fnUntraced(function* (
  request: InstallRequest,
  starter: boolean,
  lacking: ReadonlyArray<string>,
  missing: ReadonlyArray<string>
) {
  const steps = [
    ...(starter ? [`look through ${request.configFile}`] : []),
    ...lacking,
    ...(missing.length === 0 ? [] : [`set ${missing.join(", ")} in ${hostEnvFile(request.configFile)}`]),
    request.root === undefined ? "nibrunnerd start" : "on the host itself: nibrunnerd start"
  ]
  yield* note(["Next:", ...steps.map((step, at) => `  ${at + 1}. ${step}`)].join("\n"))
})

/**
 * Lays the host out. On this machine a missing prerequisite refuses it before anything is changed; below a directory it is
 * said, since another package may bring it.
 */
export const installHost = Effect.fnUntraced(function* (
  program: Program,
  place: Place,
  request: InstallRequest,
  options: { readonly steps: boolean } = { steps: true }
) {
  const { configFile, force, from } = request
  const { capacity, config, starter } = yield* configurationFor(place, request)
  const envFile = hostEnvFile(configFile)
  const hostEnv = yield* textOf(place, envFile)
  const launcher = launcherOnHost(place, program.launcher)
  const files = hostFiles(config, {
    configFile,
    program: launcher,
    hostEnv: hostEnv ?? ""
  })

  const programs = missingPrograms(place, config)
  const image = yield* imageProblem(place, request, config)
  const lacking = [
    ...unsupportedIn(config).flatMap(({ message, refused }) => (refused ? [message] : [])),
    ...(image === undefined ? [] : [imageRemedy(request, config, image)])
  ]
  const plans = yield* Effect.forEach(files, (file) => planFile(place, file, force))
  const foreign = plans.filter(({ kind }) => kind === "foreign").map(({ file }) => file.path)
  const ids = yield* planIds(place, config.max_apps)
  const reasons = [
    ...(place.root === "" && process.getuid?.() !== 0
      ? ["only root lays this machine out: call it as root, or with --root DIR"]
      : []),
    ...(place.live
      ? [...programs.map(missingProgram), ...lacking]
      : from !== undefined && image !== undefined
        ? [image]
        : []),
    ...[launcher, ...(config.volumes.zerofs === undefined ? [] : [config.volumes.zerofs.binary])]
      .filter((path) => !canBeStarted(path))
      .map((path) => `systemd starts no program with a quote or a backslash in its path: move ${path}`),
    ...foreign.map(
      (path) => `${path} is there and was not written by install: move it away, or replace it with --force`
    ),
    ...(ids.kind === "problem" ? [ids.sentence] : [])
  ]
  if (reasons.length > 0) return yield* new HostNotReady({ refused: "nothing was installed", reasons })

  const changes = makeChanges()
  const own = (file: HostFile, verb = "wrote") => writeFile(place, file, verb, changes)
  if (starter !== undefined) yield* own({ path: configFile, contents: starter, mode: 0o644 })
  if (hostEnv === undefined) yield* own({ path: envFile, contents: newHostEnv(config), mode: 0o600 })
  yield* setAside(place, config.max_apps, changes)
  for (const path of removableFiles)
    if (!files.some((file) => file.path === path)) yield* removeGenerated(place, path, changes)
  for (const { file, kind } of plans)
    if (kind !== "keep") yield* own(file, kind === "replace" ? "replaced" : "wrote")
  if (place.live && config.volumes.backend === "zerofs") yield* makeAccount(place, changes)
  for (const directory of hostDirectories(config)) yield* ensureDirectory(place, directory, changes)
  const guestImage =
    from !== undefined
      ? yield* copyImage(place, from, config.paths.guest_image_dir, changes)
      : image === undefined
        ? (yield* verifiedImage(placed(place, config.paths.guest_image_dir))).version
        : "none"
  if (config.paths.versions_file !== undefined) {
    const { zerofs } = config.volumes
    const version =
      zerofs === undefined
        ? "none"
        : place.live
          ? yield* zerofsVersion({ ...zerofs, binary: placed(place, zerofs.binary) })
          : "unknown"
    const versions = versionsFile(config.paths.versions_file, {
      agent: program.version,
      guestImage,
      zerofs: version
    })
    const plan = yield* planFile(place, versions, true)
    if (plan.kind !== "keep") yield* own(versions, plan.kind === "replace" ? "replaced" : "wrote")
  }
  if (place.live) yield* applyToKernel(place, config, changes)

  if (changes.count() === 0) yield* note("Nothing had to be changed.")
  // Another machine's max_apps is nothing to this one, unless it was measured here.
  if (place.live || starter !== undefined) yield* note(`${verdictOnApps(config.max_apps, capacity)}.`)
  if (place.live && !hasKvm(place))
    yield* note("There is no /dev/kvm: microVMs are emulated, which is several times slower.")
  if (!place.live && programs.length > 0) yield* note(leftToOthers(programs))
  if (yield* readableByOthers(place, envFile))
    yield* note(`${envFile} holds secrets, and others than its owner may read it: chmod 600 ${envFile}`)
  const set = namesSetIn((yield* textOf(place, envFile)) ?? "")
  if (options.steps)
    yield* nextSteps(
      request,
      starter !== undefined,
      lacking,
      neededVariables(config)
        .map(({ name }) => name)
        .filter((name) => !set.has(name))
    )
  return { config, changes: changes.count() }
})
