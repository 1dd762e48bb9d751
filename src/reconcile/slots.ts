/** Slots: numbers from 0 to max_apps - 1 that an app's ports and addresses are computed from. */

/**
 * The next free slot after `cursor`, going round; none when all are taken. Going round keeps a slot that
 * was just given back from being the next one handed out, so that late packets find nobody.
 */
export const nextSlot = (cursor: number, taken: ReadonlySet<number>, maxApps: number): number | undefined => {
  for (let step = 1; step <= maxApps; step++) {
    const slot = (cursor + step) % maxApps
    if (!taken.has(slot)) return slot
  }
  return undefined
}
