/** The range of ids that VMMs run as, in the host's files. */
import { Effect } from "effect"
import { type IdReservation, type IdTexts, reserveIds } from "../../src/install/id-ranges.ts"
import type { FileProblem } from "../files/problem.ts"
import { textOf, writeFile } from "./files.ts"
import type { Place } from "./place.ts"
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

/** Sets the range aside. */
export const setAside = Effect.fnUntraced(function* (place: Place, plan: IdReservation, changes: Changes) {
  if (plan.kind !== "reserve") return
  const { base, count } = plan.range
  const verb = `set the ids ${base} to ${base + count - 1} aside for microVMs in`
  for (const [path, contents] of [
    ["/etc/subuid", plan.subuid],
    ["/etc/subgid", plan.subgid]
  ] as const) {
    if (contents !== undefined) yield* writeFile(place, { path, contents, mode: 0o644 }, verb, changes)
  }
})
