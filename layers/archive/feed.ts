/** Turns a parser that asks for bytes into one that is given them as they come. */
import { Refused } from "./sink.ts"

/** `exact` bytes in one piece, or a piece of at most `some`. */
export type Want =
  | { readonly exact: number; readonly some?: never }
  | { readonly some: number; readonly exact?: never }

/** Returns when all that must be there has been: what comes after is passed over. */
export type Parser = Generator<Want, void, Buffer>

export interface Feed {
  /** The bytes are the caller's again afterwards. */
  readonly push: (chunk: Buffer) => void
  /** No more bytes come. */
  readonly end: () => void
}

export const feed = (parser: Parser): Feed => {
  let want = parser.next()
  /** The first bytes of a piece that is not there whole. */
  let held = Buffer.alloc(0)
  return {
    push: (chunk) => {
      let rest = chunk
      while (want.done !== true && rest.length > 0) {
        const { exact, some } = want.value
        if (exact === undefined) {
          const piece = rest.subarray(0, some)
          rest = rest.subarray(piece.length)
          want = parser.next(piece)
          continue
        }
        const missing = exact - held.length
        if (rest.length < missing) {
          held = Buffer.concat([held, rest])
          return
        }
        const piece = held.length === 0 ? rest.subarray(0, exact) : Buffer.concat([held, rest], exact)
        held = Buffer.alloc(0)
        rest = rest.subarray(missing)
        want = parser.next(piece)
      }
    },
    end: () => {
      if (want.done !== true) throw new Refused("is truncated: it ends in the middle")
    }
  }
}
