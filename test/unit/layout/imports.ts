/** Reads what TypeScript modules import and which globals they use, from their syntax. */
import { readdirSync, readFileSync } from "node:fs"
import { isBuiltin } from "node:module"
import { dirname, join, relative } from "node:path"
import { parseAst } from "rolldown/parseAst"

/** The project's folder. */
export const root = join(import.meta.dirname, "../../..")

/** One thing that a module asks for: the specifier as written, and the line. */
export interface Import {
  readonly specifier: string
  readonly line: number
}

/** Every TypeScript file below a folder of the project, as paths from the project's root. */
export const sources = (folder: string): ReadonlyArray<string> =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".ts"))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort()

export const read = (path: string): string => readFileSync(join(root, path), "utf8")

interface Node {
  readonly type: string
  readonly start: number
  readonly [key: string]: unknown
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && typeof (value as { type?: unknown }).type === "string"

/** Calls `visit` for each node of the syntax tree, parents first. */
export const walk = (text: string, visit: (node: Node, parent: Node | undefined, key: string) => void) => {
  const descend = (value: unknown, parent: Node | undefined, key: string): void => {
    if (Array.isArray(value)) for (const item of value) descend(item, parent, key)
    if (!isNode(value)) return
    visit(value, parent, key)
    for (const [name, child] of Object.entries(value)) descend(child, value, name)
  }
  descend(parseAst(text, { lang: "ts" }), undefined, "")
}

export const lineAt = (text: string, offset: number): number => text.slice(0, offset).split("\n").length

const literal = (value: unknown): string | undefined =>
  isNode(value) && value.type === "Literal" && typeof value.value === "string" ? value.value : undefined

/** Ways to load a module that are calls. */
const loaders = new Set(["require", "process.getBuiltinModule"])

const calleeName = (callee: unknown): string => {
  if (!isNode(callee)) return ""
  if (callee.type === "Identifier") return String(callee.name)
  if (callee.type !== "MemberExpression") return ""
  return `${calleeName(callee.object)}.${calleeName(callee.property)}`
}

/** What a module imports, in every form that the language has: also for types alone, and at run time. */
export const importsOf = (text: string): ReadonlyArray<Import> => {
  const found: Array<Import> = []
  walk(text, (node) => {
    const specifier =
      literal(node.source) ??
      (node.type === "TSImportType" ? literal(node.argument) : undefined) ??
      (node.type === "TSExternalModuleReference" ? literal(node.expression) : undefined) ??
      (node.type === "CallExpression" && loaders.has(calleeName(node.callee))
        ? literal((node.arguments as ReadonlyArray<unknown>)[0])
        : undefined)
    if (specifier !== undefined) found.push({ specifier, line: lineAt(text, node.start) })
  })
  return found
}

/** Where an import leads: a file of the project (path from its root), a part of Node, or a package. */
export const target = (importer: string, specifier: string): string => {
  if (specifier.startsWith(".")) return join(dirname(importer), specifier)
  if (isBuiltin(specifier)) return specifier.startsWith("node:") ? specifier : `node:${specifier}`
  return `package ${specifier}`
}
