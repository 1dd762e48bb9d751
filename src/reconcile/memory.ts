/** The ledger of guest memory: who holds how much, who waits, and who comes next. */
import { Deferred, Effect } from "effect"
import { type Admissions, admit, type MemoryClaim } from "./admission.ts"

export interface MemoryLedger {
  /** The apps that the document wants up, in its order; replaces the list of before. */
  readonly setClaims: (claims: ReadonlyArray<MemoryClaim>) => Effect.Effect<void>
  /**
   * Waits until the app may hold so much, then holds it. `onShortfall` is told how many MiB the host is short of
   * each time that the app has to wait (again). Interrupted, it holds nothing.
   */
  readonly acquire: (
    appId: string,
    memoryMib: number,
    onShortfall: (mib: number) => Effect.Effect<void>
  ) => Effect.Effect<void>
  /** Holds it if it may be held at once; else gives how many MiB the host is short of, and the app asks for nothing. */
  readonly tryAcquire: (appId: string, memoryMib: number) => Effect.Effect<number>
  /** The app asks for nothing for now, since it will not start: what it might want stands in nobody's way until it asks again. */
  readonly decline: (appId: string) => Effect.Effect<void>
  /** Holds it whatever the host has: for a microVM that an earlier daemon has started. */
  readonly hold: (appId: string, memoryMib: number) => Effect.Effect<void>
  /** Gives back what the app holds, if anything. */
  readonly release: (appId: string) => Effect.Effect<void>
  /** MiB held in all. */
  readonly held: Effect.Effect<number>
}

export const makeMemoryLedger = (capacityMib: number): MemoryLedger => {
  const holders = new Map<string, number>()
  let heldMib = 0
  let claims: ReadonlyMap<string, MemoryClaim> = new Map()
  let claimedMib = 0
  const declined = new Set<string>()
  let admissions: Admissions | undefined
  let changed = Deferred.makeUnsafe<void>()

  const change = (edit: () => void) =>
    Effect.suspend(() => {
      edit()
      admissions = undefined
      const before = changed
      changed = Deferred.makeUnsafe<void>()
      return Effect.asVoid(Deferred.succeed(before, undefined))
    })

  const setHolder = (appId: string, memoryMib: number | undefined) => {
    heldMib += (memoryMib ?? 0) - (holders.get(appId) ?? 0)
    if (memoryMib === undefined) holders.delete(appId)
    else holders.set(appId, memoryMib)
  }

  const shortfall = (claim: MemoryClaim): number => {
    // A host with room for all that is asked of it needs no order among those who ask.
    if (heldMib + claimedMib + claim.memoryMib <= capacityMib) return 0
    const standing = [...claims.values()].filter(({ appId }) => !declined.has(appId))
    admissions ??= admit(capacityMib, holders, standing)
    const known = claims.get(claim.appId)?.memoryMib === claim.memoryMib
    const others = standing.filter(({ appId }) => appId !== claim.appId)
    const answers = known ? admissions : admit(capacityMib, holders, [...others, claim])
    return answers.get(claim.appId) ?? 0
  }

  const acquire: MemoryLedger["acquire"] = (appId, memoryMib, onShortfall) =>
    Effect.suspend(() => {
      if (declined.delete(appId)) admissions = undefined
      const missing = shortfall({ appId, memoryMib })
      if (missing === 0) return change(() => setHolder(appId, memoryMib))
      const next = changed
      return onShortfall(missing).pipe(
        Effect.andThen(Deferred.await(next)),
        Effect.andThen(acquire(appId, memoryMib, onShortfall))
      )
    })

  const decline: MemoryLedger["decline"] = (appId) =>
    Effect.suspend(() =>
      declined.has(appId) || !claims.has(appId) ? Effect.void : change(() => declined.add(appId))
    )

  return {
    setClaims: (next) =>
      change(() => {
        claims = new Map(next.map((claim) => [claim.appId, claim]))
        for (const appId of declined) if (!claims.has(appId)) declined.delete(appId)
        claimedMib = next.reduce((sum, { memoryMib }) => sum + memoryMib, 0)
      }),
    acquire,
    tryAcquire: (appId, memoryMib) =>
      Effect.suspend(() => {
        if (declined.delete(appId)) admissions = undefined
        const missing = shortfall({ appId, memoryMib })
        return Effect.as(missing === 0 ? change(() => setHolder(appId, memoryMib)) : decline(appId), missing)
      }),
    decline,
    hold: (appId, memoryMib) => change(() => setHolder(appId, memoryMib)),
    release: (appId) => (holders.has(appId) ? change(() => setHolder(appId, undefined)) : Effect.void),
    held: Effect.sync(() => heldMib)
  }
}
