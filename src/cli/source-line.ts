/** One line of a file with a mark under the place of a problem. What is secret in it is not shown. */
import { printable } from "./printable.ts"

/** From and to, as offsets into the text. */
export type Range = readonly [start: number, end: number]

/** A text cut into lines, and the parts of it that must not be shown, in order. */
export interface Source {
  readonly text: string
  /** The offset at which each line starts. */
  readonly starts: ReadonlyArray<number>
  readonly hidden: ReadonlyArray<Range>
}

export const sourceOf = (text: string, hidden: ReadonlyArray<Range>): Source => {
  const starts = [0]
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) starts.push(at + 1)
  return { text, starts, hidden }
}

const MASK = "•••"
const WIDTH = 100
const BEFORE_MARK = 60

interface Shown {
  readonly text: string
  /** How many code points of `text` stand before the mark. */
  readonly mark: number
}

const length = (text: string) => Array.from(text).length

/** A stretch of the text with its secrets masked, and where the mark has moved to. */
const masked = ({ hidden, text }: Source, start: number, end: number, mark: number): Shown => {
  let shown = ""
  let moved = 0
  let at = start
  const take = (until: number, secret: boolean) => {
    if (mark >= at && mark < until) moved = length(shown) + (secret ? 0 : length(text.slice(at, mark)))
    shown += secret ? MASK : text.slice(at, until)
    at = until
  }
  for (const [from, to] of hidden) {
    if (to <= at || from >= end) continue
    if (from > at) take(from, false)
    take(Math.min(to, end), true)
  }
  if (at < end) take(end, false)
  return { text: shown, mark: mark >= end ? length(shown) : moved }
}

/** The line at a position (1-based, in code points), and a line below it with a mark. */
export const markedLine = (source: Source, line: number, column: number): string => {
  const start = source.starts[line - 1] ?? source.text.length
  const next = source.starts[line]
  const end = next === undefined ? source.text.length : next - 1
  // A line may be the whole document: only what is near the mark is taken apart.
  let mark = start
  for (let point = 1; point < column && mark < end; point++)
    mark += (source.text.codePointAt(mark) ?? 0) > 0xffff ? 2 : 1
  const from = Math.max(start, mark - 4 * WIDTH)
  const to = Math.min(end, mark + 4 * WIDTH)
  const shown = masked(source, from, to, mark)
  const points = Array.from(printable(shown.text.replace(/\r$/u, "")))
  const first = points.length <= WIDTH ? 0 : Math.max(0, shown.mark - BEFORE_MARK)
  const cropped = points.slice(first, first + WIDTH)
  const before = first > 0 || from > start ? "…" : ""
  const after = first + WIDTH < points.length || to < end ? "…" : ""
  const gutter = String(line)
  // A tab is as wide as the terminal makes it, above and below.
  const indent = cropped.slice(0, shown.mark - first).map((point) => (point === "\t" ? "\t" : " "))
  return [
    ` ${gutter} | ${before}${cropped.join("")}${after}`,
    ` ${" ".repeat(gutter.length)} | ${before === "" ? "" : " "}${indent.join("")}^`
  ].join("\n")
}
