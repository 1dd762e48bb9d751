/** The range of ids that VMMs run as, in the host's files. */
import { Effect } from "effect"
import { type IdReservation, type IdTexts, reserveIds } from "../../src/install/id-ranges.ts"
import { InstallFailed } from "../../src/services/Installer.ts"
import { makeDirectory } from "../files/durable.ts"
import type { FileProblem } from "../files/problem.ts"
import { lockAccounts } from "./account-lock.ts"
import { textOf, writeFile } from "./files.ts"
import { type Place, placed } from "./place.ts"
import type { Changes } from "./say.ts"

const read = (place: Place, file: string) => Effect.map(textOf(place, file), (text) => text ?? "")

/** Looks which range there is, or which one is free. */
export const planIds = (place: Place, maxApps: number): Effect.Effect<IdReservation, FileProblem> =>
  Effect.map(
    Effect.all({
      subuid: read(place, "/etc/subuid"),
      subgid: read(place, "/etc/subgid"),
      passwd: read(place, "/etc/passwd"),
      group: read(place, "/etc/group")
    }),
    (texts: IdTexts) => reserveIds(texts, maxApps)
  )

/** Sets the range aside, unless it is. What is free is looked at once more while nobody else may change it. */
export const setAside = (place: Place, maxApps: number, changes: Changes) =>
  Effect.gen(function* () {
    if ((yield* planIds(place, maxApps)).kind !== "reserve") return
    const files = ["/etc/subuid", "/etc/subgid"].map((file) => placed(place, file))
    yield* makeDirectory(placed(place, "/etc"))
    yield* Effect.forEach(files, lockAccounts, { discard: true })
    const plan = yield* planIds(place, maxApps)
    if (plan.kind === "problem") return yield* new InstallFailed({ reason: plan.sentence })
    if (plan.kind === "reserved") return
    const { base, count } = plan.range
    const verb = `set the ids ${base} to ${base + count - 1} aside for microVMs in`
    for (const [path, contents] of [
      ["/etc/subuid", plan.subuid],
      ["/etc/subgid", plan.subgid]
    ] as const) {
      if (contents !== undefined) yield* writeFile(place, { path, contents, mode: 0o644 }, verb, changes)
    }
  }).pipe(Effect.scoped)
