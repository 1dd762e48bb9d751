/** Has the running kernel do what the files of a host ask for at every boot. */
import * as fs from "node:fs/promises"
import { Effect } from "effect"
import type { HostConfig } from "../../src/config/schema.ts"
import { type KernelSetting, kernelModules, kernelSettings, nbdMinors } from "../../src/install/kernel.ts"
import { ifPresent, onFile } from "../files/problem.ts"
import { runProgram } from "./command.ts"
import { textOf } from "./files.ts"
import { type Place, placed } from "./place.ts"
import { type Changes, note } from "./say.ts"

/** Loading may take long on a machine that is busy. */
const LOAD_LIMIT_SECONDS = 60

/** What shows that a module is there. The kernel may have it built in, and then it has no directory of its own. */
const SHOWN_BY: Readonly<Record<string, string>> = {
  nf_conntrack: "/proc/sys/net/netfilter/nf_conntrack_max",
  tun: "/dev/net/tun"
}

const isLoaded = (place: Place, module: string) => {
  const path = placed(place, SHOWN_BY[module] ?? `/sys/module/${module}`)
  return Effect.map(ifPresent(onFile(path, () => fs.stat(path))), (found) => found !== undefined)
}

const load = Effect.fnUntraced(function* (place: Place, module: string, changes: Changes) {
  if (yield* isLoaded(place, module)) return
  const failed = yield* runProgram("modprobe", [module], LOAD_LIMIT_SECONDS).pipe(
    Effect.map(({ code, lastWord }) => (code === 0 ? undefined : lastWord)),
    Effect.catch(({ reason }) => Effect.succeed(`${reason} (Debian package kmod)`))
  )
  yield* failed === undefined
    ? changes.made(`loaded the kernel's module ${module}`)
    : note(`The kernel's module ${module} could not be loaded: ${failed}.`)
})

const pathOf = (name: string): string => `/proc/sys/${name.replaceAll(".", "/")}`

const set = Effect.fnUntraced(function* (place: Place, setting: KernelSetting, changes: Changes) {
  const { atLeast, name, value } = setting
  const text = yield* textOf(place, pathOf(name))
  if (text === undefined) return yield* note(`This kernel has no ${name}.`)
  const now = Number(text.trim())
  if (now === value || (atLeast && now > value)) return
  const path = placed(place, pathOf(name))
  yield* onFile(path, () => fs.writeFile(path, `${value}\n`)).pipe(
    Effect.andThen(changes.made(`set ${name} to ${value}, which was ${now}`)),
    Effect.catch(({ reason }) => note(`${name} is ${now} and could not be set to ${value}: ${reason}.`))
  )
})

/** Says so when the module has too few devices. It is not loaded anew: that would take the device from every guest. */
const countMinors = Effect.fnUntraced(function* (place: Place, config: HostConfig) {
  const text = yield* textOf(place, "/sys/module/nbd/parameters/nbds_max")
  const wanted = nbdMinors(config)
  if (text === undefined || Number(text.trim()) >= wanted) return
  yield* note(
    `The kernel's module nbd is loaded with ${text.trim()} devices, and max_apps = ${config.max_apps} takes ${wanted}. ` +
      "It is not loaded anew, which would take the device from every guest: reboot this host, and it has them."
  )
})

/** Loads modules and sets settings that are not in force. What the kernel refuses is said, and stops nothing. */
export const applyToKernel = Effect.fnUntraced(function* (
  place: Place,
  config: HostConfig,
  changes: Changes
) {
  for (const module of kernelModules(config)) yield* load(place, module, changes)
  for (const setting of kernelSettings(config)) yield* set(place, setting, changes)
  if (config.volumes.backend === "zerofs") yield* countMinors(place, config)
})
