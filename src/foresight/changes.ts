/** Where two versions of an instance differ. Names only: values may be secrets. */
import { sameJson } from "../document/difference.ts"
import type { DesiredInstance } from "../document/schema.ts"

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The dotted paths of what differs, deepest first known object: lists and single values are told as a whole. */
const paths = (before: unknown, after: unknown, path: string): ReadonlyArray<string> => {
  if (sameJson(before, after)) return []
  if (!isObject(before) || !isObject(after)) return [path]
  // Another kind of the same thing has other keys: what matters is that it is another kind.
  if (before.kind !== after.kind) return [path]
  const keys = new Set([...Object.keys(before), ...Object.keys(after)])
  return [...keys].flatMap((key) => paths(before[key], after[key], `${path}.${key}`))
}

type Part = keyof DesiredInstance

const changed = (
  before: DesiredInstance,
  after: DesiredInstance,
  parts: ReadonlyArray<Part>
): ReadonlyArray<string> => parts.flatMap((part) => paths(before[part], after[part], part))

/** What a running instance keeps as it booted, until its `deploymentId` changes. */
export const keptUntilDeployed = (booted: DesiredInstance, wanted: DesiredInstance): ReadonlyArray<string> =>
  changed(booted, wanted, ["volumeId", "layers", "config"])

/** What a running instance takes up at once. */
export const takenUpAtOnce = (before: DesiredInstance, after: DesiredInstance): ReadonlyArray<string> =>
  changed(before, after, ["desiredState", "hostnames", "activation", "idleTimeoutMs"])
