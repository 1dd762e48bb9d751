/** Troubles of the host that apps tell in their messages: whom they concern is told to look again. */
import { Effect, Stream, SubscriptionRef } from "effect"
import type { AppId } from "../document/schema.ts"
import type { HostContext } from "./host-context.ts"

/** What has apps look again at what they say of themselves. */
export interface Told {
  readonly everyone: Effect.Effect<void>
  readonly some: (appIds: Iterable<AppId>) => Effect.Effect<void>
}

/** Volumes that cannot be read or written concern every app. Runs for ever. */
export const watchVolumes = (host: HostContext, told: Told): Effect.Effect<void> =>
  SubscriptionRef.changes(host.volumes.trouble).pipe(
    Stream.runForEach((trouble) =>
      Effect.suspend(() => {
        if (trouble === host.volumeTrouble) return Effect.void
        host.volumeTrouble = trouble
        const said =
          trouble === undefined
            ? Effect.logInfo("volumes can be read and written again")
            : Effect.logError(`volumes cannot be read or written: ${trouble}`)
        return Effect.andThen(said, told.everyone)
      })
    )
  )

type Refused = ReadonlyMap<AppId, ReadonlyArray<string>>

const differing = (before: Refused, after: Refused): ReadonlyArray<AppId> =>
  [...new Set([...before.keys(), ...after.keys()])].filter(
    (appId) => before.get(appId)?.join() !== after.get(appId)?.join()
  )

/** A port that another program has concerns the app that it is meant for. The proxy's log names it. Runs for ever. */
export const watchPorts = (host: HostContext, told: Told): Effect.Effect<void> =>
  Effect.suspend(() => {
    let before: Refused = new Map()
    return SubscriptionRef.changes(host.proxy.refusedPorts).pipe(
      Stream.runForEach((after) => {
        const concerned = differing(before, after)
        before = after
        return told.some(concerned)
      })
    )
  })

/** What an app says of its ports that cannot be listened on; the rest of it works. */
export const portTrouble = ({ proxy }: HostContext, appId: AppId): string | undefined => {
  const refused = SubscriptionRef.getUnsafe(proxy.refusedPorts).get(appId)
  return refused === undefined ? undefined : `${refused.join("; ")}; tried again every few seconds`
}
