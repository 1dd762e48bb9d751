/** Rows under headings, as wide as what is in them, or as the terminal. */
import { CliOutput } from "effect/cli"
import type { Colour, Paint } from "./paint.ts"

/** Columns that a text takes on a terminal. */
export const widthOf = (text: string): number =>
  /^[\x20-\x7e]*$/u.test(text) ? text.length : CliOutput.displayWidth(text)

// Made when the first text is cut: it takes long.
let graphemes: Intl.Segmenter | undefined

/** Cuts a text to so many columns, never inside a character; what is cut ends with `…`. */
export const cut = (text: string, width: number): string => {
  if (widthOf(text) <= width) return text
  if (width <= 0) return ""
  graphemes ??= new Intl.Segmenter(undefined, { granularity: "grapheme" })
  let kept = ""
  let left = width - 1
  for (const { segment } of graphemes.segment(text)) {
    left -= widthOf(segment)
    if (left < 0) break
    kept += segment
  }
  return `${kept}…`
}

const fill = (text: string, width: number, right: boolean): string => {
  const space = " ".repeat(Math.max(0, width - widthOf(text)))
  return right ? space + text : text + space
}

export interface Column<Row> {
  readonly title: string
  readonly of: (row: Row) => string
  readonly colour?: (row: Row) => Colour | undefined
  /** Numbers stand at the right. */
  readonly right?: boolean
  /** It may be cut down to so many columns where the line is too long; those with the lowest order first. */
  readonly yields?: { readonly order: number; readonly least: number }
}

const GAP = 2

/** The columns' widths, cut where they have to be. */
const fitted = <Row>(columns: ReadonlyArray<Column<Row>>, natural: ReadonlyArray<number>, width: number) => {
  const widths = [...natural]
  let excess = widths.reduce((sum, one) => sum + one, GAP * (columns.length - 1)) - width
  const yielding = columns
    .flatMap(({ yields }, index) => (yields === undefined ? [] : [{ index, ...yields }]))
    .sort((a, b) => a.order - b.order)
  for (const { index, least } of yielding) {
    const now = widths[index] ?? 0
    const taken = Math.max(0, Math.min(excess, now - least))
    widths[index] = now - taken
    excess -= taken
  }
  return widths
}

/**
 * @param width columns of the terminal; undefined when nothing is to be cut
 */
export const table = <Row>(
  columns: ReadonlyArray<Column<Row>>,
  rows: ReadonlyArray<Row>,
  paint: Paint,
  width: number | undefined
): ReadonlyArray<string> => {
  const cells = rows.map((row) => columns.map(({ of }) => of(row)))
  const natural = columns.map(({ title }, index) =>
    cells.reduce((most, row) => Math.max(most, widthOf(row[index] ?? "")), widthOf(title))
  )
  const widths = width === undefined ? natural : fitted(columns, natural, width)
  const line = (texts: ReadonlyArray<string>, colourOf: (index: number) => Colour | undefined): string => {
    let shown = ""
    let used = 0
    for (const [index, text] of texts.entries()) {
      const room = widths[index] ?? 0
      // Even a terminal that is narrower than all that may be cut gets no line that is too long.
      const space = width === undefined ? room : Math.max(0, Math.min(room, width - used))
      const cell = cut(text, space)
      const last = index === texts.length - 1
      shown += paint(
        colourOf(index),
        last && columns[index]?.right !== true ? cell : fill(cell, space, columns[index]?.right === true)
      )
      used += space
      if (!last) {
        const gap = width === undefined ? GAP : Math.max(0, Math.min(GAP, width - used))
        shown += " ".repeat(gap)
        used += gap
      }
    }
    return shown.trimEnd()
  }
  return [
    line(
      columns.map(({ title }) => title),
      () => "bold"
    ),
    ...rows.map((row, at) => line(cells[at] ?? [], (index) => columns[index]?.colour?.(row)))
  ]
}
