/** JSON that may be printed on a terminal. */

/**
 * The same JSON with every character that could steer a terminal, or turn its text, written as an escape. Such
 * characters stand inside of strings only; JSON itself escapes those below U+0020.
 */
export const safeJson = (json: string): string =>
  json.replaceAll(
    /[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu,
    (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`
  )
