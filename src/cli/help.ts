/** Texts of `--help`. */

/** Columns that every terminal has. */
const WIDTH = 78
/** How far the texts are set in. */
const INDENT = "  "

const wrapped = (paragraph: string): ReadonlyArray<string> => {
  const lines: Array<string> = []
  let line = ""
  for (const word of paragraph.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > WIDTH) {
      lines.push(line)
      line = word
    } else {
      line = line === "" ? word : `${line} ${word}`
    }
  }
  return [...lines, line]
}

/** A description of several paragraphs. The help sets in its first line only. */
export const paragraphs = (...texts: ReadonlyArray<string>): string =>
  texts.map((text) => wrapped(text).join(`\n${INDENT}`)).join(`\n\n${INDENT}`)
