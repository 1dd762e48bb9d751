/** What is wrong with a file that may be a `desired.json` or a `config.toml`. */
import { Effect } from "effect"
import type { Range } from "./source-line.ts"

export const fileKinds = ["desired", "config"] as const
export type FileKind = (typeof fileKinds)[number]

export interface FileIssue {
  /** A JSON pointer, or for a configuration the dotted key. */
  readonly path: string
  readonly message: string
  readonly line: number
  readonly column: number
}

export interface Verdict {
  readonly kind: FileKind
  readonly issues: ReadonlyArray<FileIssue>
  /** What looks like a mistake and is none that the host minds. */
  readonly warnings: ReadonlyArray<FileIssue>
  /** There are more issues than are listed. */
  readonly truncated: boolean
  readonly text: string
  /** What of the text must not be shown, in order; asked for only when there are issues. */
  readonly hidden: () => ReadonlyArray<Range>
}

const lenient = new TextDecoder()

/** JSON starts with an object. What starts otherwise is told by its name, and without one taken for TOML. */
export const kindOf = (file: string, bytes: Uint8Array): FileKind => {
  const start = lenient.decode(bytes.subarray(0, 4096)).trimStart()
  if (start.startsWith("{")) return "desired"
  return file.endsWith(".json") ? "desired" : "config"
}

/** Decodes a file as what it is taken for. */
export const judge = (file: string, bytes: Uint8Array, kind: FileKind): Effect.Effect<Verdict> =>
  // Each is loaded when such a file is met: most calls need one of them.
  kind === "desired"
    ? Effect.map(
        Effect.promise(() => import("./verdict-document.ts")),
        ({ judgeDocument }) => judgeDocument(bytes)
      )
    : Effect.map(
        Effect.promise(() => import("./verdict-config.ts")),
        ({ judgeConfig }) => judgeConfig(file, bytes)
      )
