/** `nibrunnerd check`: whether files are what the host can act on, without a host. */
import { Console, Effect, FileSystem, Option, Runtime, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { orList } from "../document/near-names.ts"
import { readBounded } from "./bounded-file.ts"
import { paragraphs } from "./help.ts"
import { safeJson } from "./json.ts"
import { printable } from "./printable.ts"
import { markedLine, type Source, sourceOf } from "./source-line.ts"
import { type FileIssue, type FileKind, fileKinds, judge, kindOf, type Verdict } from "./verdict.ts"

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
  warnings: [],
  truncated: false,
  text: "",
  hidden: () => []
})

/** The files of a host, as they are usually called. */
const USUAL = ["desired.json", "config.toml"]
const MOST_OFFERED = 3

/** Why there is nothing to check under a name that is a directory's. */
const inDirectory = Effect.fnUntraced(function* (directory: string) {
  const files = yield* FileSystem.FileSystem
  const names = yield* files
    .readDirectory(directory)
    .pipe(Effect.orElseSucceed((): ReadonlyArray<string> => []))
  const usual = USUAL.filter((name) => names.includes(name))
  const likely = usual.length > 0 ? usual : names.filter((name) => /\.(?:json|toml)$/u.test(name)).sort()
  const paths = likely.slice(0, MOST_OFFERED).map((name) => `${directory.replace(/\/+$/u, "")}/${name}`)
  return `it is a directory; name a file in it${paths.length === 0 ? "" : `, as ${orList(paths)}`}`
})

const verdictOn = Effect.fnUntraced(function* (file: string, as: Option.Option<FileKind>) {
  const refused = (reason: string) =>
    unreadable(
      Option.getOrElse(as, () => "desired"),
      reason
    )
  const files = yield* FileSystem.FileSystem
  return yield* readBounded(file).pipe(
    Effect.flatMap((bytes) =>
      judge(
        file,
        bytes,
        Option.getOrElse(as, () => kindOf(file, bytes))
      )
    ),
    Effect.catch(({ reason }) =>
      files.stat(file).pipe(
        Effect.flatMap(({ type }) => (type === "Directory" ? inDirectory(file) : Effect.succeed(reason))),
        Effect.orElseSucceed(() => reason),
        Effect.map(refused)
      )
    )
  )
})

/** One line of JSON for a file, which may be printed on a terminal. */
export const verdictJson = (file: string, { issues }: Verdict): string =>
  safeJson(
    JSON.stringify({
      file,
      valid: issues.length === 0,
      issues: issues.map(({ column, line, message, path }) => ({ path, message, line, column }))
    })
  )

const kindNames = { desired: "desired.json", config: "config.toml" } as const

/** One problem with its place, and the line that it is on where there is one. */
const entry = (
  file: string,
  source: Source | undefined,
  { column, line, message, path }: FileIssue,
  degree: string
): string =>
  [
    printable(`${file}:${line}:${column}: ${degree}${message}`),
    ...(path === "" ? [] : [printable(`  at ${path}`)]),
    ...(source === undefined ? [] : [markedLine(source, line, column)])
  ].join("\n")

/** The same for what is odd and no problem; nothing when nothing is. */
export const warningsListing = (file: string, { hidden, text, warnings }: Verdict): string => {
  if (warnings.length === 0) return ""
  const source = sourceOf(text, hidden())
  return warnings.map((warning) => entry(file, source, warning, "warning: ")).join("\n\n")
}

/** A compiler's listing for a file: each problem with the line that it is on. */
export const verdictListing = (file: string, { hidden, issues, kind, text, truncated }: Verdict): string => {
  if (issues.length === 0) return `${file}: valid ${kindNames[kind]}`
  const source = sourceOf(text, hidden())
  const entries = issues.map((issue) => entry(file, text === "" ? undefined : source, issue, ""))
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
      if (verdict.warnings.length > 0) yield* Console.error(warningsListing(file, verdict))
      yield* Console.log(json ? verdictJson(file, verdict) : verdictListing(file, verdict))
      if (verdict.issues.length > 0) refused.push(file)
    }
    if (refused.length > 0) return yield* new NotValid({ files: refused })
  })
).pipe(
  Command.withDescription(
    paragraphs(
      "Check documents and configurations: every problem with its place. Exits with 0 when all are valid, with 1 when one is not.",
      "A field of a document that is not known is ignored, as the host ignores it; where it looks like a slip for one that is optional, a warning says so on stderr. A configuration must not have any.",
      "A document is accepted although no host can run one of its apps or make one of its volumes; a warning gives the reason that the host would report."
    )
  ),
  Command.withExamples([
    { command: "nibrunnerd check desired.json", description: "Check a document before it is put in place" },
    { command: "nibrunnerd check --json *.json", description: "The same for a program to read" },
    { command: "nibrunnerd check /etc/nibrunner/config.toml", description: "Check a host's configuration" }
  ])
)
