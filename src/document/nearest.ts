/** Which known name somebody may have meant. */

/** How many characters must be added, taken away, replaced or swapped with their neighbour. */
const editDistance = (left: string, right: string): number => {
  let older: Array<number> = []
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index)
  for (let i = 1; i <= left.length; i++) {
    const row = [i]
    for (let j = 1; j <= right.length; j++) {
      const same = left[i - 1] === right[j - 1]
      const swapped = left[i - 1] === right[j - 2] && left[i - 2] === right[j - 1]
      row[j] = Math.min(
        (previous[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (previous[j - 1] ?? 0) + (same ? 0 : 1),
        swapped && i > 1 && j > 1 ? (older[j - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY
      )
    }
    older = previous
    previous = row
  }
  return previous[right.length] ?? 0
}

/** How far a name may be from a known one to have been meant. */
const slip = (candidate: string): number => Math.max(2, Math.floor(candidate.length / 3))

/** The known name that is nearest to a name, when it is near enough to have been meant. */
export const nearestName = (name: string, known: ReadonlyArray<string>): string | undefined => {
  // A long name is nobody's slip, and comparing it would take long.
  if (name.length > 100) return undefined
  const scored = known
    // As many characters must be added or taken away at least.
    .filter((candidate) => Math.abs(candidate.length - name.length) <= slip(candidate))
    .map((candidate) => ({
      candidate,
      distance: editDistance(name.toLowerCase().replaceAll("-", "_"), candidate.toLowerCase())
    }))
    .sort((a, b) => a.distance - b.distance)
  const best = scored[0]
  return best !== undefined && best.distance <= slip(best.candidate) ? best.candidate : undefined
}
