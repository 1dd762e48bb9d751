/**
 * Which apps may hold memory: those that do, then those that the document wants up, in its order.
 *
 * A later app that fits may start although an earlier one waits; the earlier one's want is not set aside, or a
 * single large app would idle the host.
 */

export interface MemoryClaim {
  readonly appId: string
  readonly memoryMib: number
}

/** MiB that the app is short of; 0 when it may start. */
export type Admissions = ReadonlyMap<string, number>

/**
 * @param capacityMib what guests may be promised in all
 * @param holders apps whose microVM is up or being started: they keep what they hold
 * @param claims apps that want to start, in document order
 */
export const admit = (
  capacityMib: number,
  holders: ReadonlyMap<string, number>,
  claims: ReadonlyArray<MemoryClaim>
): Admissions => {
  let held = 0
  for (const mib of holders.values()) held += mib
  const admissions = new Map<string, number>()
  for (const claim of claims) {
    if (holders.has(claim.appId)) continue
    const shortfall = Math.max(0, held + claim.memoryMib - capacityMib)
    admissions.set(claim.appId, shortfall)
    if (shortfall === 0) held += claim.memoryMib
  }
  return admissions
}
