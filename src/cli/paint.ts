/** Colours of a terminal. */

export type Colour = "red" | "green" | "yellow" | "dim" | "bold"

const codes: Record<Colour, number> = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 }

/** Colours a text, or leaves it as it is. */
export type Paint = (colour: Colour | undefined, text: string) => string

export const plain: Paint = (_, text) => text

export const coloured: Paint = (colour, text) =>
  colour === undefined || text === "" ? text : `\x1b[${codes[colour]}m${text}\x1b[0m`
