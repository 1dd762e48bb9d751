/** Counts and distributions, kept by the text of their labels. They begin at 0 with the daemon. */

/** Label text as it stands between the braces of a sample; empty for a series without labels. */
export type LabelText = string

/** Grows only. An app has several of which most count nothing, and take no room. */
export class Counter<Key extends string = LabelText> {
  #totals: Map<Key, number> | undefined

  /** @param known label texts that are on the page from the start, at 0, so that a first event is seen as a rise */
  constructor(known: ReadonlyArray<NoInfer<Key>> = []) {
    for (const labels of known) this.add(labels, 0)
  }

  add(labels: Key, by = 1): void {
    this.#totals ??= new Map()
    this.#totals.set(labels, (this.#totals.get(labels) ?? 0) + by)
  }

  get totals(): ReadonlyMap<Key, number> {
    return this.#totals ?? new Map()
  }
}

export interface Distribution {
  /** How many observations fell into each bucket; one more than there are bounds, for what lies above the last. */
  readonly counts: ReadonlyArray<number>
  readonly sum: number
  readonly count: number
}

interface Observed {
  readonly counts: Array<number>
  sum: number
  count: number
}

const nothingObserved = (bounds: ReadonlyArray<number>): Observed => ({
  counts: new Array<number>(bounds.length + 1).fill(0),
  sum: 0,
  count: 0
})

export class Histogram {
  readonly bounds: ReadonlyArray<number>
  readonly #observed = new Map<LabelText, Observed>()

  /** @param bounds upper ends of the buckets, each of which includes its end; rising */
  constructor(bounds: ReadonlyArray<number>) {
    this.bounds = bounds
  }

  observe(labels: LabelText, value: number): void {
    let observed = this.#observed.get(labels)
    if (observed === undefined) {
      observed = nothingObserved(this.bounds)
      this.#observed.set(labels, observed)
    }
    const bucket = bucketOf(this.bounds, value)
    observed.counts[bucket] = (observed.counts[bucket] ?? 0) + 1
    observed.sum += value
    observed.count++
  }

  /** What was observed until now under these labels: a copy. */
  distributionOf(labels: LabelText): Distribution {
    const { counts, sum, count } = this.#observed.get(labels) ?? nothingObserved(this.bounds)
    return { counts: [...counts], sum, count }
  }

  get distributions(): ReadonlyMap<LabelText, Distribution> {
    return this.#observed
  }
}

/** The index of the first bucket whose upper end is not below the value; `bounds.length` when there is none. */
export const bucketOf = (bounds: ReadonlyArray<number>, value: number): number => {
  let bucket = 0
  while (bucket < bounds.length && value > (bounds[bucket] ?? Number.POSITIVE_INFINITY)) bucket++
  return bucket
}
