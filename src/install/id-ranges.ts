/** Setting the ids of VMMs aside, so that no account and no container gets them: `/etc/subuid` and `/etc/subgid`. */
import { DEFAULT_ID_RANGE, ID_RANGE_OWNER, type IdRange, readIdRange } from "../hypervisor/identity.ts"

/** The texts that say which ids are somebody's. */
export interface IdTexts {
  /** `/etc/subuid`; empty where there is none. */
  readonly subuid: string
  readonly subgid: string
  /** `/etc/passwd` and `/etc/group`. */
  readonly passwd: string
  readonly group: string
}

/** What is to be done. `problem`: why the range there is cannot be used, and what to do, as a sentence. */
export type IdReservation =
  | { readonly kind: "reserved"; readonly range: IdRange }
  | {
      readonly kind: "reserve"
      readonly range: IdRange
      /** The new texts of the files; undefined where a file needs no change. */
      readonly subuid: string | undefined
      readonly subgid: string | undefined
    }
  | { readonly kind: "problem"; readonly sentence: string }

interface Taken {
  readonly owner: string
  readonly first: number
  readonly last: number
}

const fieldsOf = (text: string): ReadonlyArray<ReadonlyArray<string>> =>
  text
    .split("\n")
    .flatMap((line) => (line.trim() === "" || line.startsWith("#") ? [] : [line.trim().split(":")]))

/** The ranges of others. */
const rangesIn = (text: string): ReadonlyArray<Taken> =>
  fieldsOf(text).flatMap(([owner = "", first, count]) =>
    owner === ID_RANGE_OWNER || !/^\d+$/u.test(first ?? "") || !/^\d+$/u.test(count ?? "")
      ? []
      : [{ owner, first: Number(first), last: Number(first) + Number(count) - 1 }]
  )

/** The ids of accounts or groups: the third field. */
const idsIn = (text: string): ReadonlyArray<Taken> =>
  fieldsOf(text).flatMap(([owner = "", , id]) =>
    /^\d+$/u.test(id ?? "") ? [{ owner, first: Number(id), last: Number(id) }] : []
  )

const overlapping = ({ base, count }: IdRange, taken: ReadonlyArray<Taken>): Taken | undefined =>
  taken.find(({ first, last }) => first <= base + count - 1 && last >= base)

const lineOf = ({ base, count }: IdRange): string => `${ID_RANGE_OWNER}:${base}:${count}`

const hasLine = (text: string): boolean =>
  text.split("\n").some((line) => line.startsWith(`${ID_RANGE_OWNER}:`))

const withLine = (text: string, line: string): string =>
  `${text}${text === "" || text.endsWith("\n") ? "" : "\n"}${line}\n`

/** The lowest range from the default up that nobody has. */
const freeRange = (taken: ReadonlyArray<Taken>): IdRange | undefined => {
  let range = DEFAULT_ID_RANGE
  for (;;) {
    const other = overlapping(range, taken)
    if (other === undefined) return range
    range = { ...range, base: other.last + 1 }
    if (range.base + range.count > 2 ** 32 - 1) return undefined
  }
}

/** Decides on the range for VMMs of a host with so many slots. One that is there stays. */
export const reserveIds = (texts: IdTexts, maxApps: number): IdReservation => {
  const problem = (sentence: string): IdReservation => ({ kind: "problem", sentence })
  const taken = [
    ...rangesIn(texts.subuid),
    ...rangesIn(texts.subgid),
    ...idsIn(texts.passwd),
    ...idsIn(texts.group)
  ]
  const present = [
    { file: "/etc/subuid", text: texts.subuid },
    { file: "/etc/subgid", text: texts.subgid }
  ].filter(({ text }) => hasLine(text))
  const [first, second] = present
  if (first === undefined) {
    const range = freeRange(taken)
    if (range === undefined) return problem("/etc/subuid and /etc/subgid leave no ids free for VMMs")
    const line = lineOf(range)
    return {
      kind: "reserve",
      range,
      subuid: withLine(texts.subuid, line),
      subgid: withLine(texts.subgid, line)
    }
  }
  const range = readIdRange(first.text)
  if (typeof range === "string") return problem(`${first.file}: ${range}: mend or remove that line`)
  if (range.count < maxApps)
    return problem(
      `${first.file} gives ${ID_RANGE_OWNER} ${range.count} ids, but max_apps is ${maxApps}: each app's VMM needs one`
    )
  const other = overlapping(range, taken)
  if (other !== undefined)
    return problem(
      `${first.file}: the ids of ${ID_RANGE_OWNER} from ${range.base} on belong to ${other.owner} too: give one of them others`
    )
  if (second === undefined) {
    const line = lineOf(range)
    return {
      kind: "reserve",
      range,
      subuid: first.file === "/etc/subuid" ? undefined : withLine(texts.subuid, line),
      subgid: first.file === "/etc/subuid" ? withLine(texts.subgid, line) : undefined
    }
  }
  const groups = readIdRange(second.text)
  if (typeof groups === "string") return problem(`${second.file}: ${groups}: mend or remove that line`)
  return groups.base === range.base && groups.count === range.count
    ? { kind: "reserved", range }
    : problem(
        `/etc/subuid and /etc/subgid give ${ID_RANGE_OWNER} different ids, but the VMM of a slot has one number for both: ` +
          `make them the same, as ${lineOf(range)}`
      )
}
