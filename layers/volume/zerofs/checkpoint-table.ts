/** What `zerofs checkpoint list` prints: a table drawn with box characters, or a sentence where there is none. */
import type { Checkpoint } from "../../../src/services/VolumeBackend.ts"

const COLUMNS = ["Name", "ID", "Created At"]
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/u
const MOMENT = /^(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)$/u
const NONE = /^no checkpoints/iu

/** The cells of a row, told apart by the very character that the header's cells are told apart by. */
const cells = (line: string, divider: string): ReadonlyArray<string> =>
  line
    .trim()
    .replace(/^[│┃║|]/u, "")
    .replace(/[│┃║|]$/u, "")
    .split(divider)
    .map((cell) => cell.trim())

/** ms since 1970 of a moment that was printed in UTC. */
const moment = (text: string): number | undefined => {
  const fields = MOMENT.exec(text)?.slice(1).map(Number)
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = fields ?? []
  const at = Date.UTC(year, month - 1, day, hour, minute, second)
  return fields === undefined || Number.isNaN(at) ? undefined : at
}

/** The checkpoints of the listing, which was made under TZ=UTC; or the line that makes no sense. */
export const readCheckpoints = (text: string): ReadonlyArray<Checkpoint> | { readonly unread: string } => {
  const lines = text.split(/\r?\n/u)
  const headerAt = lines.findIndex((line) => COLUMNS.every((column) => line.includes(column)))
  const header = lines[headerAt]
  if (header === undefined) {
    const said = lines.map((line) => line.trim()).filter((line) => line !== "")
    return said.some((line) => NONE.test(line)) ? [] : { unread: said[0] ?? "nothing" }
  }
  const divider = /Name\s*(\S)\s*ID/u.exec(header)?.[1] ?? "┆"
  const checkpoints: Array<Checkpoint> = []
  for (const line of lines.slice(headerAt + 1)) {
    if (!/[\p{L}\p{N}]/u.test(line)) continue
    const row = cells(line, divider)
    const [reference = "", at = ""] = row.slice(-2)
    const createdAt = moment(at)
    if (row.length < 3 || !UUID.test(reference) || createdAt === undefined) return { unread: line.trim() }
    // a name made by hand may hold what cells are told apart by
    checkpoints.push({ name: row.slice(0, -2).join(divider), reference, createdAt })
  }
  return checkpoints
}
