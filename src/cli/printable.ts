/** Nothing that a document, a guest or a file says may steer the terminal, nor turn the direction of its text. */
export const printable = (text: string): string =>
  text.replaceAll(/[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu, "\ufffd")
