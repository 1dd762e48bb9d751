/** What a new document changes: the things that must be looked at, and nothing else. */
import type { AppId, CheckpointId, ExportId, HostDesiredState, VolumeId } from "./schema.ts"

export interface Difference {
  /** Apps whose instance came, went or changed, or whose volumes did. */
  readonly appIds: ReadonlySet<AppId>
  readonly volumeIds: ReadonlySet<VolumeId>
  readonly checkpointIds: ReadonlySet<CheckpointId>
  readonly exportIds: ReadonlySet<ExportId>
}

/** Whether two JSON values are the same. The order of keys does not count, that of items does. */
export const sameJson = (left: unknown, right: unknown): boolean => {
  if (left === right) return true
  if (typeof left !== "object" || typeof right !== "object" || left === null || right === null) return false
  if (Array.isArray(left))
    return (
      Array.isArray(right) &&
      left.length === right.length &&
      left.every((item, index) => sameJson(item, right[index]))
    )
  if (Array.isArray(right)) return false
  const a = left as Readonly<Record<string, unknown>>
  const b = right as Readonly<Record<string, unknown>>
  let members = 0
  for (const key in a) {
    members++
    if (!Object.hasOwn(b, key) || !sameJson(a[key], b[key])) return false
  }
  for (const _ in b) members--
  return members === 0
}

/** The items that are in only one of two lists, or not the same in both; both versions of those that changed. */
const changed = <A, Id>(
  before: ReadonlyArray<A>,
  after: ReadonlyArray<A>,
  id: (item: A) => Id
): ReadonlyArray<A> => {
  const old = new Map(before.map((item) => [id(item), item]))
  const touched: Array<A> = []
  for (const item of after) {
    const earlier = old.get(id(item))
    old.delete(id(item))
    if (earlier === undefined) touched.push(item)
    else if (!sameJson(earlier, item)) touched.push(earlier, item)
  }
  return [...touched, ...old.values()]
}

const nothing: Pick<HostDesiredState, "volumes" | "instances" | "checkpoints" | "exports"> = {
  volumes: [],
  instances: [],
  checkpoints: [],
  exports: []
}

/** What differs between the document in force, if there is one, and a new one. */
export const difference = (before: HostDesiredState | undefined, after: HostDesiredState): Difference => {
  const old = before ?? nothing
  const instances = changed(old.instances, after.instances, ({ appId }) => appId)
  const volumes = changed(old.volumes, after.volumes, ({ volumeId }) => volumeId)
  const checkpoints = changed(old.checkpoints, after.checkpoints, ({ checkpointId }) => checkpointId)
  const exports = changed(old.exports, after.exports, ({ exportId }) => exportId)
  return {
    appIds: new Set([...instances, ...volumes].map(({ appId }) => appId)),
    volumeIds: new Set(volumes.map(({ volumeId }) => volumeId)),
    checkpointIds: new Set(checkpoints.map(({ checkpointId }) => checkpointId)),
    exportIds: new Set(exports.map(({ exportId }) => exportId))
  }
}
