/** What of a `config.toml` is not shown: it holds no secrets, unless somebody put one into it by mistake. */

import { namesIn } from "../document/names.ts"
import { HostConfig } from "./schema.ts"

const known = new Set(namesIn(HostConfig.ast))

/** The last part of a key, what follows it on its line, and where that starts. */
const assignment = /^[ \t]*(?:[^\s="'.]+\.|"[^"\n]*"\.)*("[^"\n]*"|'[^'\n]*'|[^\s="'.]+)[ \t]*=[ \t]*(.*)$/gmu
/** `//name:password@`, which no address of ours may hold. */
const credentials = /:\/\/([^\s"'/]*)@/gu

/** The values of keys that are not known, and credentials in addresses: from and to, in the order of the text. */
export const secretRanges = (text: string): ReadonlyArray<readonly [start: number, end: number]> => {
  const values = Array.from(text.matchAll(assignment)).flatMap((match) => {
    const name = (match[1] ?? "").replaceAll(/["']/gu, "")
    const end = match.index + match[0].length
    return known.has(name) ? [] : [[end - (match[2] ?? "").length, end] as const]
  })
  const logins = Array.from(text.matchAll(credentials)).map(
    (match) => [match.index + 3, match.index + match[0].length - 1] as const
  )
  return [...values, ...logins].sort((a, b) => a[0] - b[0])
}
