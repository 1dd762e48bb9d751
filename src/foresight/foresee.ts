/**
 * What a host would do with a document, app by app, against what it runs now. Pure.
 *
 * What apps share is given out as the host does it: first to those that need not wait for a microVM to stop, then
 * as one microVM after the other has stopped, here in document order. On the host they stop side by side, so where
 * apps compete for the last memory or slot another of them may be first.
 */
import type { AppId, DesiredInstance, HostDesiredState } from "../document/schema.ts"
import { admit } from "../reconcile/admission.ts"
import { byApp, claimsOf, unnamed } from "../reconcile/desired-apps.ts"
import { dormant } from "../reconcile/plan.ts"
import { type HostLimits, refusal } from "../reconcile/refusal.ts"
import type { AppRecord, VolumeRecord } from "../services/HostState.ts"
import type { AppForesight } from "./actions.ts"
import { told } from "./told.ts"
import { type HostSupply, stepOn, stopIfDue, type Walker, withoutMachine } from "./walk.ts"

/** A host as it stands. */
export interface HostNow {
  /** ms since 1970. */
  readonly now: number
  /** The document in force. */
  readonly document: HostDesiredState | undefined
  readonly records: ReadonlyArray<AppRecord>
  readonly volumes: ReadonlyArray<VolumeRecord>
  /** The apps whose microVM runs. */
  readonly up: ReadonlySet<AppId>
  readonly limits: HostLimits
  /** How many slots there are. */
  readonly maxApps: number
}

const supplyOf = (host: HostNow, document: HostDesiredState): HostSupply => {
  const records = new Map<string, AppRecord>(host.records.map((record) => [record.appId, record]))
  const instances = new Map<string, DesiredInstance>(
    document.instances.map((instance) => [instance.appId, instance])
  )
  const running = new Set<string>(host.up)
  // Who sleeps until somebody comes asks for nothing.
  const claims = claimsOf(document, byApp(document), host.limits).filter(({ appId }) => {
    const instance = instances.get(appId)
    const up = running.has(appId)
    return instance?.desiredState !== "on-request" || !dormant(records.get(appId), instance, up)
  })
  const wanted = new Map(
    document.instances.map(({ appId, config }) => [appId, config.resources.memoryMib] as const)
  )
  const holders = new Map<string, number>(
    host.records.flatMap(({ appId, instance }) =>
      instance === undefined || !host.up.has(appId) ? [] : [[appId, instance.config.resources.memoryMib]]
    )
  )
  let freeSlots = host.maxApps - host.records.length
  let admissions: ReadonlyMap<string, number> | undefined
  // Who was admitted and has taken its memory since leaves the others admitted; only what is missing changes.
  let taken = false
  return {
    takeSlot: () => {
      if (freeSlots <= 0) return false
      freeSlots--
      return true
    },
    giveSlot: () => {
      freeSlots++
    },
    takeMemory: (appId) => {
      const missing = (): number => {
        admissions ??= admit(host.limits.memoryMib, holders, claims)
        return admissions.get(appId) ?? 0
      }
      if (missing() > 0 && taken) {
        admissions = undefined
        taken = false
      }
      const missingMib = missing()
      if (missingMib > 0) return missingMib
      holders.set(appId, wanted.get(appId) ?? 0)
      taken = true
      return 0
    },
    giveMemory: (appId) => {
      holders.delete(appId)
      admissions = undefined
    }
  }
}

const walkers = (host: HostNow, document: HostDesiredState): ReadonlyArray<Walker> => {
  const desired = byApp(document)
  const records = new Map(host.records.map((record) => [record.appId, record]))
  const volumes = Map.groupBy(host.volumes, ({ appId }) => appId)
  const named = document.instances.map(({ appId }) => appId)
  const all = new Set<AppId>([...named, ...desired.keys(), ...records.keys(), ...volumes.keys()])
  return Array.from(all, (appId): Walker => {
    const app = desired.get(appId) ?? unnamed
    const record = records.get(appId)
    const up = host.up.has(appId)
    const lost = record?.machine !== undefined && !up
    return {
      appId,
      desired: app,
      refusal: app.instance === undefined ? undefined : refusal(app.instance, app.volumes, host.limits),
      volumes: new Map(
        (volumes.get(appId) ?? []).map((known) => [known.volumeId, { record: known, failure: undefined }])
      ),
      record: record !== undefined && lost ? withoutMachine(record) : record,
      machineUp: up,
      lost,
      now: host.now,
      notBefore: undefined,
      fetched: undefined,
      superseded: undefined,
      waiting: undefined,
      actions: []
    }
  })
}

/** What the host would do with the document: its apps in document order, then those that it does not name. */
export const foresee = (host: HostNow, document: HostDesiredState): ReadonlyArray<AppForesight> => {
  const supply = supplyOf(host, document)
  const apps = walkers(host, document)
  const settle = (some: ReadonlyArray<Walker>) => {
    for (let further = true; further; ) {
      further = false
      for (const app of some) further = stepOn(app, supply) || further
    }
  }
  settle(apps)
  for (const app of apps) {
    if (stopIfDue(app, supply)) settle(apps.filter((other) => other === app || other.waiting !== undefined))
  }
  const before = new Map((host.document?.instances ?? []).map((instance) => [instance.appId, instance]))
  return apps.map((app) => told(app, before.get(app.appId), host))
}
