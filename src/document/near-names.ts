/** Which names somebody may have meant. */
import { nearestName } from "./nearest.ts"

/** At most so many are offered. */
const OFFERED = 3

/** The known names that hold the given one, then those that are a slip away from it. */
export const nearNames = (given: string, known: ReadonlyArray<string>): ReadonlyArray<string> => {
  const wanted = given.toLowerCase()
  const holding =
    wanted === ""
      ? []
      : known
          .filter((name) => name.toLowerCase().includes(wanted))
          .sort((a, b) => a.length - b.length || (a < b ? -1 : 1))
  const near = holding.slice(0, OFFERED)
  // `nearestName` takes a dash for the underscore that keys are spelled with.
  const rest = new Map(
    known.filter((name) => !near.includes(name)).map((name) => [name.replaceAll("-", "_"), name] as const)
  )
  while (near.length < OFFERED) {
    const key = nearestName(given, [...rest.keys()])
    const name = key === undefined ? undefined : rest.get(key)
    if (key === undefined || name === undefined) return near
    rest.delete(key)
    near.push(name)
  }
  return near
}

/** `a`, `a or b`, `a, b or c`. */
export const orList = (names: ReadonlyArray<string>): string =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`

/** The sentence for an app that this host does not know; `known` are those that it does. */
export const noSuchApp = (app: string, known: ReadonlyArray<string>): string => {
  const near = nearNames(app, known)
  const hint =
    near.length > 0
      ? `Did you mean ${orList(near)}?`
      : known.length === 0
        ? "It knows no app yet"
        : `nibrunnerd status shows the ${known.length} that it knows`
  return `this host knows no app ${JSON.stringify(app)}. ${hint}`
}
