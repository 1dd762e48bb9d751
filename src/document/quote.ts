/** Texts of a document in a message: short, and harmless to a terminal. */

/** The most code points of a text that a message shows. */
export const MAX_SHOWN = 60

/** At most 60 code points of a text, quoted as JSON. */
export const quote = (text: string): string => {
  // Cut before it is taken apart: the text may be megabytes long.
  const points = Array.from(text.slice(0, 2 * MAX_SHOWN + 2))
  return points.length <= MAX_SHOWN
    ? JSON.stringify(text)
    : `${JSON.stringify(points.slice(0, MAX_SHOWN).join(""))}…`
}
