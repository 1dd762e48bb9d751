/** How long what failed on the host's storage is left alone before it is tried again, in ms. */
const firstMs = 2_000
const longestMs = 300_000

/** @param failures how often it has failed in a row, 1 or more */
export const retryDelayMs = (failures: number): number =>
  Math.min(longestMs, firstMs * 2 ** Math.min(30, Math.max(0, failures - 1)))

/** When it is tried again, for the end of a sentence. @param at ms since 1970 */
export const triedAgain = (at: number): string => `tried again at ${new Date(at).toISOString()}`
