import type { Plugin, RolldownOptions } from "rolldown"

/**
 * Loads the parts of Node one by one, when the module that imports them begins to run. An import would load them all
 * before anything runs, and with `node:http` a whole fetch client.
 */
const lazyBuiltins: Plugin = {
  name: "lazy-builtins",
  resolveId: (id) => (id.startsWith("node:") ? { id: `\0${id}`, moduleSideEffects: false } : null),
  load: (id) => {
    if (!id.startsWith("\0node:")) return null
    const name = id.slice(1)
    const names = Object.keys(process.getBuiltinModule(name) ?? {}).filter((key) =>
      /^[A-Za-z_$][\w$]*$/u.test(key)
    )
    return [
      `const builtin = process.getBuiltinModule(${JSON.stringify(name)})`,
      "export default builtin",
      ...names.map(
        (key) =>
          `const its_${key} = /* @__PURE__ */ (() => builtin.${key})()\nexport { its_${key} as ${key} }`
      )
    ].join("\n")
  }
}

/** The program as it is installed: one file that needs nothing but Node, so that it starts fast. */
export default {
  input: "bin/nibrunnerd.ts",
  platform: "node",
  plugins: [lazyBuiltins],
  output: {
    file: "dist/nibrunnerd.mjs",
    format: "esm",
    // A daemon that has run for weeks must never load a part of a newer build. What is imported where it is needed
    // lies in the one file too, and runs no sooner.
    codeSplitting: false
  }
} satisfies RolldownOptions
