/** How long what has failed is left alone before it is tried again: twice as long each time, up to a bound. */
interface Delays {
  readonly firstMs: number
  readonly longestMs: number
}

/** Work on the host's storage. */
const storage: Delays = { firstMs: 2_000, longestMs: 300_000 }

/** @param failures how often it has failed in a row, 1 or more */
export const retryDelayMs = (failures: number, { firstMs, longestMs }: Delays = storage): number =>
  Math.min(longestMs, firstMs * 2 ** Math.min(30, Math.max(0, failures - 1)))

/** When it is tried again, for the end of a sentence. @param at ms since 1970 */
export const triedAgain = (at: number): string => `tried again at ${new Date(at).toISOString()}`
