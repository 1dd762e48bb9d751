/** Configurations as dotted keys with their values as TOML, as the vectors write them. */

export type DottedKeys = Readonly<Record<string, string>>

export type ConfigOperation =
  | { readonly op: "set"; readonly key: string; readonly toml: string }
  | { readonly op: "remove"; readonly key: string }

/** A configuration with the operations applied in order. */
export const withOperations = (
  config: DottedKeys,
  operations: ReadonlyArray<ConfigOperation>
): DottedKeys => {
  const keys = new Map(Object.entries(config))
  for (const operation of operations) {
    if (operation.op === "set") keys.set(operation.key, operation.toml)
    else
      for (const name of [...keys.keys()])
        if (name === operation.key || name.startsWith(`${operation.key}.`)) keys.delete(name)
  }
  return Object.fromEntries(keys)
}

/** The file: keys at the top, then a table for each section. */
export const tomlOf = (config: DottedKeys): string => {
  const tables = new Map<string, Array<string>>([["", []]])
  for (const [name, value] of Object.entries(config)) {
    const dot = name.startsWith('"') ? -1 : name.lastIndexOf(".")
    const table = dot === -1 ? "" : name.slice(0, dot)
    const lines = tables.get(table) ?? []
    tables.set(table, lines)
    lines.push(`${name.slice(dot + 1)} = ${value}`)
  }
  return [...tables]
    .map(([table, lines]) => [...(table === "" ? [] : [`[${table}]`]), ...lines, ""].join("\n"))
    .join("\n")
}
