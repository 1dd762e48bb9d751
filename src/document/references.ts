/** `$NIBRUN_NAME` and `${NIBRUN_NAME}` in an environment value: the names that the host fills in. */

/** The names that the host fills in. Source: `TenantValue` of the document. */
export const runtimeReferences = ["NIBRUN_HOSTNAME", "NIBRUN_HTTP_PORT"] as const
export type RuntimeReference = (typeof runtimeReferences)[number]

/** What each name stands for in one instance; a name without a value is refused where it is used. */
export type RuntimeValues = Readonly<Partial<Record<RuntimeReference, string>>>

// A braced reference is one only if it is closed; `${NIBRUN_…` without `}` is literal text.
const reference = /\$\{(NIBRUN_[A-Za-z0-9_]*)\}|\$(NIBRUN_[A-Za-z0-9_]*)/gu

const isKnown = (name: string): name is RuntimeReference =>
  (runtimeReferences as readonly string[]).includes(name)

/** The names that a value refers to, in order, known or not. */
export const referencesIn = (value: string): ReadonlyArray<string> => {
  const names: Array<string> = []
  // `matchAll` makes a pattern of its own for each value, which takes longer than the search.
  reference.lastIndex = 0
  for (let match = reference.exec(value); match !== null; match = reference.exec(value))
    names.push(match[1] ?? match[2] ?? "")
  return names
}

const known = runtimeReferences.map((name) => name.slice("NIBRUN_".length)).join("|")

/** Matches a value in which every reference is to a name that the host fills in; for the JSON Schema. */
export const REFERENCES_PATTERN = new RegExp(
  `^(?![\\s\\S]*(?:\\$\\{NIBRUN_(?!(?:${known})\\})[A-Za-z0-9_]*\\}|\\$NIBRUN_(?!(?:${known})(?![A-Za-z0-9_]))))`,
  "u"
)

/** Why a value is refused: the first reference to a name that the host does not fill in. Never the value itself. */
export const referenceProblem = (value: string): string | undefined => {
  // Most values refer to nothing, and this is asked of every one.
  if (!value.includes("$NIBRUN_") && !value.includes("${NIBRUN_")) return undefined
  const unknown = referencesIn(value).find((name) => !isKnown(name))
  return unknown === undefined
    ? undefined
    : `refers to ${unknown.slice(0, 64)}, which this host does not fill in: ${runtimeReferences.join(" and ")} are`
}

/** The value with every reference filled in; a reference without a value is left as it stands. */
export const fillReferences = (value: string, values: RuntimeValues): string =>
  value.replaceAll(reference, (text, braced: string | undefined, bare: string | undefined) => {
    const name = braced ?? bare ?? ""
    return isKnown(name) ? (values[name] ?? text) : text
  })
