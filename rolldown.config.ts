import type { RolldownOptions } from "rolldown"

/** The program as it is installed: one file that needs nothing but Node, so that it starts fast. */
export default {
  input: "bin/nibrunnerd.ts",
  platform: "node",
  output: {
    file: "dist/nibrunnerd.mjs",
    format: "esm",
    // a daemon that has run for weeks must never load a part of a newer build
    codeSplitting: false
  }
} satisfies RolldownOptions
