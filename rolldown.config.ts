import { type ChunkingContext, type Plugin, type RolldownOptions, rolldown } from "rolldown"

/** Parts that take long to load, and of which most commands import functions that they never call. */
const slowParts: ReadonlySet<string> = new Set(["node:crypto", "node:child_process"])

/**
 * Loads the parts of Node one by one, when the module that imports them begins to run. An import would load them all
 * before anything runs, and with `node:http` a whole fetch client.
 */
const lazyBuiltins: Plugin = {
  name: "lazy-builtins",
  // Each importer has slow parts of its own, so that none loads what another takes of them.
  resolveId: (id, importer = "") =>
    id.startsWith("node:")
      ? { id: `\0${id}${slowParts.has(id) ? `?${importer}` : ""}`, moduleSideEffects: false }
      : null,
  load: (id) => {
    if (!id.startsWith("\0node:")) return null
    const [name = ""] = id.slice(1).split("?")
    const part = `process.getBuiltinModule(${JSON.stringify(name)})`
    const exports = Object.entries(process.getBuiltinModule(name) ?? {}).flatMap(([key, value]) => {
      if (key === "default" || !/^[A-Za-z_$][\w$]*$/u.test(key)) return []
      const plain = typeof value === "function" && /^[a-z]/u.test(key)
      const whole = `/* @__PURE__ */ (() => builtin.${key})()`
      const its =
        slowParts.has(name) && plain
          ? `(...given) => ${part}.${key}(...given)`
          : // A part of its own, which is loaded when it is first looked at.
            name === "node:fs" && key === "promises"
            ? `/* @__PURE__ */ new Proxy({}, { get: (_, its) => builtin.promises[its] })`
            : whole
      return [`const its_${key} = ${its}`, `export { its_${key} as ${key} }`]
    })
    return [`const builtin = /* @__PURE__ */ (() => ${part})()`, "export default builtin", ...exports].join(
      "\n"
    )
  }
}

/** A text with a part replaced that must be there: a newer Effect may have none of it, or need another way. */
const replaced = (code: string, part: RegExp, by: string): string => {
  if (!part.test(code)) throw new Error(`rolldown.config.ts: ${part} is no longer in what it speeds up`)
  return code.replace(part, by)
}

/** What Effect does as it is loaded that takes long, and that nothing of ours needs by then. */
const startSooner: Plugin = {
  name: "start-sooner",
  transform: (code, id) => {
    // A segmenter of Unicode text; here the first text makes it.
    if (id.endsWith("/effect/dist/cli/CliOutput.js"))
      return `let segmenter\n${replaced(
        code,
        /new Intl\.Segmenter\((undefined, \{[^}]*\})\)/u,
        "{ segment: (text) => (segmenter ??= new Intl.Segmenter($1)).segment(text) }"
      )}`
    // Whether a name has been minified away is asked of a stack, for which the whole bundle is cut into lines. Names
    // are kept here.
    if (id.endsWith("/effect/dist/Utils.js"))
      return replaced(code, /error\.stack\?\.includes\(InternalTypeId\) === true/u, "true")
    return null
  }
}

/** The program of a thread is a text in the bundle: a daemon that has run for weeks must not start a newer build's. */
const threadAsText: Plugin = {
  name: "thread-as-text",
  load: async (id) => {
    if (!id.endsWith("/layers/archive/worker-code.ts")) return null
    const build = await rolldown({ input: id.replace(/-code\.ts$/u, ".ts"), platform: "node" })
    const { output } = await build.generate({ format: "cjs", codeSplitting: false, minify: true })
    await build.close()
    return `export const workerCode = ${JSON.stringify(output[0].code)}`
  }
}

/** A text that is ASCII alone is read faster: V8 holds it as it is. */
const ascii: Plugin = {
  name: "ascii",
  generateBundle: (_, bundle) => {
    for (const part of Object.values(bundle)) {
      if (part.type !== "chunk") continue
      // Without the flag u: a character beyond U+FFFF is two escapes.
      part.code = part.code.replaceAll(
        /[^\x00-\x7f]/g,
        (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`
      )
    }
  }
}

/** AWS's client is a file of its own: it is as large as all the rest, and who has no store on S3 starts without it. */
const s3Client = {
  input: "layers/store/s3/sdk.ts",
  platform: "node",
  plugins: [ascii],
  output: { file: "dist/nibrunnerd-s3.mjs", format: "esm", codeSplitting: false }
} satisfies RolldownOptions

/** It is loaded as the daemon starts: none that has run for weeks loads the file of a newer build. */
const apart: Plugin = {
  name: "apart",
  resolveId: (id, importer = "") =>
    id === "./sdk.ts" && importer.endsWith("/layers/store/s3/bucket.ts")
      ? { id: "./nibrunnerd-s3.mjs", external: true }
      : null
}

const entry = "bin/nibrunnerd.ts"

/**
 * The modules that any command may take. What is imported where a command needs it is among them, unless the entry
 * itself imports it so: those are the parts that work on a host.
 */
const commandModules = (context: ChunkingContext): ReadonlySet<string> => {
  const found = new Set<string>()
  const visit = (id: string): void => {
    if (found.has(id)) return
    found.add(id)
    const module = context.getModuleInfo(id)
    for (const imported of module?.importedIds ?? []) visit(imported)
    if (!id.endsWith(`/${entry}`))
      for (const imported of module?.dynamicallyImportedIds ?? []) visit(imported)
  }
  visit(`${import.meta.dirname}/${entry}`)
  return found
}

/** Two files: Node takes long for a large one, and most commands need only the half of it. */
const apartFromCommands = () => {
  let commands: ReadonlySet<string> | undefined
  return (id: string, context: ChunkingContext) => {
    commands ??= commandModules(context)
    return commands.has(id) ? "nibrunnerd" : "nibrunnerd-host"
  }
}

/**
 * The program as it is installed: files that need nothing but Node, so that it starts fast. A daemon loads both as it
 * starts: one that has run for weeks must never load a part of a newer build.
 */
const program = {
  input: entry,
  platform: "node",
  plugins: [apart, threadAsText, lazyBuiltins, startSooner, ascii],
  preserveEntrySignatures: false,
  // A module that is imported where one command needs it runs no sooner, whichever file it lies in.
  checks: { ineffectiveDynamicImport: false },
  output: {
    dir: "dist",
    format: "esm",
    entryFileNames: "[name].mjs",
    chunkFileNames: "[name].mjs",
    // The sources explain, and whoever copies the file finds whose work it is.
    comments: { legal: true, annotation: false, jsdoc: false },
    // Names stay for whoever reads the trace of a defect; what Node would only skip goes.
    minify: { mangle: false, compress: false, codegen: { removeWhitespace: true } },
    codeSplitting: {
      includeDependenciesRecursively: false,
      groups: [{ debugName: "program", name: apartFromCommands() }]
    }
  }
} satisfies RolldownOptions

/** The files that are installed. The program is the last: it is only there with what it loads. */
export default [s3Client, program]
