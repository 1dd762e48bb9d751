/** `nibrunnerd check`: whether files are what the host can act on, without a host. */
import { Console, Effect, FileSystem, Option, Runtime, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { printable } from "./printable.ts"
import { markedLine, sourceOf } from "./source-line.ts"
import { type FileKind, fileKinds, judge, kindOf, type Verdict } from "./verdict.ts"

/** The answer is no. It has been printed already. */
export class NotValid extends Schema.TaggedError<NotValid>()("NotValid", {
  files: Schema.Array(Schema.String)
}) {
  override readonly [Runtime.errorExitCode] = 1
  override readonly [Runtime.errorReported] = false
  override get message() {
    return `not valid: ${this.files.join(", ")}`
  }
}

const unreadable = (kind: FileKind, reason: string): Verdict => ({
  kind,
  issues: [{ path: "", message: `the file cannot be read: ${reason}`, line: 1, column: 1 }],
  truncated: false,
  text: "",
  hidden: () => []
})

const verdictOn = Effect.fnUntraced(function* (file: string, as: Option.Option<FileKind>) {
  const files = yield* FileSystem.FileSystem
  return yield* files.readFile(file).pipe(
    Effect.flatMap((bytes) =>
      judge(
        file,
        bytes,
        Option.getOrElse(as, () => kindOf(file, bytes))
      )
    ),
    Effect.catch((error) =>
      Effect.succeed(
        unreadable(
          Option.getOrElse(as, () => "desired"),
          error.reason._tag === "NotFound" ? "there is no such file" : error.message
        )
      )
    )
  )
})

/** One line of JSON for a file. */
export const verdictJson = (file: string, { issues }: Verdict): string =>
  JSON.stringify({
    file,
    valid: issues.length === 0,
    issues: issues.map(({ column, line, message, path }) => ({ path, message, line, column }))
  })

const kindNames = { desired: "desired.json", config: "config.toml" } as const

/** A compiler's listing for a file: each problem with the line that it is on. */
export const verdictListing = (file: string, { hidden, issues, kind, text, truncated }: Verdict): string => {
  if (issues.length === 0) return `${file}: valid ${kindNames[kind]}`
  const source = sourceOf(text, hidden())
  const entries = issues.map(({ column, line, message, path }) =>
    [
      printable(`${file}:${line}:${column}: ${message}`),
      ...(path === "" ? [] : [printable(`  at ${path}`)]),
      ...(text === "" ? [] : [markedLine(source, line, column)])
    ].join("\n")
  )
  const more = truncated ? "more than " : ""
  const count = `${file}: ${more}${issues.length} problem${issues.length === 1 ? "" : "s"}`
  return [...entries, count].join("\n\n")
}

export const check = Command.make(
  "check",
  {
    files: Argument.Path("FILE").pipe(
      Argument.withDescription("A desired.json or a config.toml."),
      Argument.atLeast(1)
    ),
    as: Flag.Literals("as", fileKinds).pipe(
      Flag.optional,
      Flag.withDescription("What the files are, where their content does not tell: desired or config.")
    ),
    json: Flag.Boolean("json").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Print one JSON object a file, each on one line.")
    )
  },
  Effect.fn(function* ({ as, files, json }) {
    const refused: Array<string> = []
    for (const file of files) {
      const verdict = yield* verdictOn(file, as)
      yield* Console.log(json ? verdictJson(file, verdict) : verdictListing(file, verdict))
      if (verdict.issues.length > 0) refused.push(file)
    }
    if (refused.length > 0) return yield* new NotValid({ files: refused })
  })
).pipe(
  Command.withDescription(
    "Check documents and configurations: every problem with its place. Exits with 0 when all are valid, with 1 when one is not."
  ),
  Command.withExamples([
    { command: "nibrunnerd check desired.json", description: "Check a document before it is put in place" },
    { command: "nibrunnerd check --json *.json", description: "The same for a program to read" },
    { command: "nibrunnerd check /etc/nibrunner/config.toml", description: "Check a host's configuration" }
  ])
)
