/** A document, taken apart by app. */
import type { AppId, HostDesiredState } from "../document/schema.ts"
import type { MemoryClaim } from "./admission.ts"
import type { DesiredApp } from "./model.ts"
import { wantsMachine } from "./plan.ts"
import { type HostLimits, refusal } from "./refusal.ts"

/** What a document says of an app that it does not name. */
export const unnamed: DesiredApp = { instance: undefined, volumes: [] }

/** What the document says, app by app. */
export const byApp = (document: HostDesiredState | undefined): Map<AppId, DesiredApp> => {
  const apps = new Map<AppId, DesiredApp>()
  const of = (appId: AppId): DesiredApp => apps.get(appId) ?? unnamed
  for (const volume of document?.volumes ?? []) {
    const app = of(volume.appId)
    apps.set(volume.appId, { ...app, volumes: [...app.volumes, volume] })
  }
  for (const instance of document?.instances ?? [])
    apps.set(instance.appId, { ...of(instance.appId), instance })
  return apps
}

/** The app that the document gives each hostname to. */
export const hostnameOwners = (
  document: HostDesiredState | undefined
): ReadonlyArray<readonly [hostname: string, appId: AppId]> =>
  (document?.instances ?? []).flatMap(({ appId, hostnames }) =>
    hostnames.map(({ hostname }) => [hostname, appId] as const)
  )

/**
 * The memory of every app that the document wants up, in its order. An instance that this host refuses claims
 * none: it would keep others waiting for what it never takes.
 *
 * @param apps the same document, by app
 */
export const claimsOf = (
  document: HostDesiredState | undefined,
  apps: ReadonlyMap<AppId, DesiredApp>,
  limits: HostLimits
): ReadonlyArray<MemoryClaim> =>
  (document?.instances ?? [])
    .filter(
      (instance) =>
        wantsMachine(instance) &&
        refusal(instance, apps.get(instance.appId)?.volumes ?? [], limits) === undefined
    )
    .map(({ appId, config }) => ({ appId, memoryMib: config.resources.memoryMib }))
