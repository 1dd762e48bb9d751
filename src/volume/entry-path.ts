/**
 * Where an entry of an archive goes. Names are bytes, whatever their encoding: in a string of them each character
 * is one byte.
 */

/** Bytes. The longest path that Linux takes. */
const LONGEST_PATH = 4095
/** Bytes. The longest name of one file. */
const LONGEST_NAME = 255

export type EntryPlace =
  /** `path` is relative, without empty and `.` parts; empty for the destination itself. */
  | { readonly kind: "inside"; readonly path: string }
  /** What the archiver or an editor left there, and not its owner. */
  | { readonly kind: "litter" }
  | { readonly kind: "refused"; readonly reason: string }

const LITTER = /^(?:\.DS_Store|__MACOSX|\._.*|Thumbs\.db|desktop\.ini|\..*\.sw.|\.#.*)$/su

/** Whether a file or directory of this name is skipped, with all that is in it. */
export const isLitter = (name: string): boolean => LITTER.test(name)

const refused = (reason: string): EntryPlace => ({ kind: "refused", reason })

/** The place of an entry under the destination; litter counts as such only inside of it. */
export const placeEntry = (name: string): EntryPlace => {
  if (name.includes("\0")) return refused("has a NUL byte in its name")
  if (name.startsWith("/")) return refused("leaves the destination: its path is absolute")
  if (name.length > LONGEST_PATH) return refused(`has a path of more than ${LONGEST_PATH} bytes`)
  const parts = name.split("/").filter((part) => part !== "" && part !== ".")
  if (parts.includes("..")) return refused('leaves the destination: its path has a ".."')
  if (parts.some((part) => part.length > LONGEST_NAME)) {
    return refused(`has a name of more than ${LONGEST_NAME} bytes`)
  }
  return parts.some(isLitter) ? { kind: "litter" } : { kind: "inside", path: parts.join("/") }
}

const MOST_SHOWN = 100

/** A name for a sentence: quoted, in printable characters, its middle left out where it is long. */
export const showName = (name: string): string => {
  const bytes = Uint8Array.from(name, (character) => character.charCodeAt(0))
  const points = [...new TextDecoder().decode(bytes)]
  const half = MOST_SHOWN / 2
  const shown = points.length <= MOST_SHOWN ? points : [...points.slice(0, half), "…", ...points.slice(-half)]
  return JSON.stringify(shown.join("")).replace(
    /[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )
}
