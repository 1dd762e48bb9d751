/** Changes to a JSON document, as the vectors write them. */

export type Operation =
  | { readonly op: "set"; readonly path: string; readonly value: unknown }
  | { readonly op: "remove"; readonly path: string }

const keysOf = (pointer: string): ReadonlyArray<string> =>
  pointer
    .split("/")
    .slice(1)
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"))

/** A copy of a document with the operations applied in order. */
export const withOperations = (document: unknown, operations: ReadonlyArray<Operation>): unknown => {
  let root = structuredClone(document)
  for (const operation of operations) {
    const keys = keysOf(operation.path)
    const last = keys.at(-1)
    if (last === undefined) {
      root = operation.op === "set" ? structuredClone(operation.value) : undefined
      continue
    }
    const holder = keys.slice(0, -1).reduce((value, key) => (value as Record<string, unknown>)[key], root)
    if (operation.op === "set") (holder as Record<string, unknown>)[last] = structuredClone(operation.value)
    else if (Array.isArray(holder)) holder.splice(Number(last), 1)
    else delete (holder as Record<string, unknown>)[last]
  }
  return root
}
