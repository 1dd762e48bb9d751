/** Reads the report and shows it, once or whenever it changes. */
import { Clock, Console, Effect, FileSystem, Option, Result, Schema, Terminal } from "effect"
import { TerminalCapabilities } from "effect/cli"
import type { HostReport } from "../report/schema.ts"
import { HostView } from "../services/HostView.ts"
import { safeJson } from "./json.ts"
import { failuresIn, type NextStart, nextStarts } from "./next-starts.ts"
import { coloured, plain } from "./paint.ts"
import { printable } from "./printable.ts"
import { readReport, reportFile } from "./report-file.ts"
import { NO_DAEMON, renderStatus } from "./status-table.ts"

/** What of the document is shown. It was accepted once, so that no more of it is looked at. */
const Named = Schema.fromJsonString(
  Schema.Struct({
    instances: Schema.Array(
      Schema.Struct({
        appId: Schema.String,
        hostnames: Schema.Array(Schema.Struct({ hostname: Schema.String })),
        config: Schema.Struct({
          ports: Schema.optionalKey(Schema.Array(Schema.Struct({ guestPort: Schema.Int })))
        })
      })
    )
  })
)

const decodeNamed = Schema.decodeUnknownOption(Named)

/** How apps are reached; undefined when the host's notes cannot be read. */
interface WaysIn {
  readonly hostnames: ReadonlyMap<string, ReadonlyArray<string>>
  readonly rawPorts: ReadonlyMap<string, ReadonlyArray<number>>
}

/** The guest ports that microVMs which are up were booted with: the document may name others since. */
const bootedPorts = Effect.gen(function* () {
  const view = yield* HostView
  const notes = yield* view.notes
  return Option.match(notes, { onNone: () => [], onSome: ({ apps }) => apps }).flatMap(
    ({ appId, instance, machine }) =>
      instance === undefined || machine === undefined
        ? []
        : [[appId as string, (instance.config.ports ?? []).map(({ guestPort }) => guestPort)] as const]
  )
})

const waysIn = Effect.gen(function* () {
  const view = yield* HostView
  const document = yield* view.document
  const named = Option.flatMap(document, ({ text }) => decodeNamed(text))
  const instances = Option.match(named, { onNone: () => [], onSome: (known) => known.instances })
  const served = view.limits.rawPortsPerGuest > 0 && instances.some(({ config }) => config.ports?.length)
  return {
    hostnames: new Map(
      instances.map(({ appId, hostnames }) => [appId, hostnames.map(({ hostname }) => hostname)] as const)
    ),
    rawPorts: new Map(
      !served
        ? []
        : [
            ...instances.map(
              ({ appId, config }) => [appId, (config.ports ?? []).map(({ guestPort }) => guestPort)] as const
            ),
            ...(yield* bootedPorts)
          ]
    )
  } satisfies WaysIn
}).pipe(Effect.orElseSucceed(() => undefined))

interface Shown {
  readonly text: string
  readonly report: HostReport
  readonly waysIn: WaysIn | undefined
  readonly failures: string
  readonly nextStarts: ReadonlyMap<string, NextStart> | undefined
}

const NO_FAILURES = "[]"

/** Whether a daemon runs; undefined for who may not know. */
const daemonRuns = Effect.gen(function* () {
  const view = yield* HostView
  return Result.getOrUndefined(yield* Effect.result(view.daemonRuns))
})

const look = Effect.fnUntraced(function* (path: string, before?: Shown) {
  const { report, text } = yield* readReport(path).pipe(
    Effect.catchIf(
      ({ missing }) => missing,
      (error) =>
        Effect.flatMap(daemonRuns, (runs) => Effect.fail(runs === undefined ? error : error.told(runs)))
    )
  )
  const failures = failuresIn(report)
  const known = failures === before?.failures ? before.nextStarts : undefined
  const next = failures === NO_FAILURES ? undefined : (known ?? (yield* nextStarts))
  return { text, report, waysIn: yield* waysIn, failures, nextStarts: next } satisfies Shown
})

const lines = Effect.fnUntraced(function* ({ nextStarts, report, waysIn }: Shown) {
  const { canAnimate, canColor } = yield* TerminalCapabilities.TerminalCapabilities
  const terminal = yield* Terminal.Terminal
  const columns = canAnimate ? yield* terminal.columns : 0
  return renderStatus({
    report,
    hostnames: waysIn?.hostnames,
    rawPorts: waysIn?.rawPorts,
    nextStarts,
    daemonRuns: yield* daemonRuns,
    now: yield* Clock.currentTimeMillis,
    paint: canColor ? coloured : plain,
    width: columns > 0 ? columns : undefined
  })
})

const oneLine = (text: string): string => safeJson(text.trim())

/** Shows the report as it is now. */
export const showStatus = Effect.fnUntraced(function* (stateDir: string, json: boolean) {
  const shown = yield* look(reportFile(stateDir))
  if (!json) return yield* Console.log((yield* lines(shown)).join("\n"))
  yield* Console.log(oneLine(shown.text))
  if ((yield* daemonRuns) === false) yield* Console.error(NO_DAEMON)
})

/** Between two looks at the file. */
const LOOK_EVERY = "250 millis"
/** A duration that is shown changes once a second. */
const LOOKS_PER_SECOND = 4

const ALTERNATE = "\x1b[?1049h\x1b[?25l"
const NORMAL = "\x1b[?25h\x1b[?1049l"
const HOME = "\x1b[H"
const REST_OF_LINE = "\x1b[K"
const REST_OF_SCREEN = "\x1b[J"

/** Draws over what is there, as much as fits. */
const draw = Effect.fnUntraced(function* (all: ReadonlyArray<string>) {
  const terminal = yield* Terminal.Terminal
  const rows = yield* terminal.rows
  const room = Math.max(1, (rows > 0 ? rows : 24) - 1)
  const fitting =
    all.length <= room ? all : [...all.slice(0, room - 1), `… ${all.length - room + 1} more lines`]
  yield* terminal.display(HOME + fitting.map((line) => `${line}${REST_OF_LINE}\n`).join("") + REST_OF_SCREEN)
})

/** What tells one version of a file from the next: it is replaced as a whole. */
const versionOf = Effect.fnUntraced(function* (path: string) {
  const files = yield* FileSystem.FileSystem
  return yield* files.stat(path).pipe(
    Effect.map(({ ino, mtime, size }) =>
      [Option.getOrUndefined(ino), Option.getOrUndefined(mtime)?.getTime(), size].join(" ")
    ),
    Effect.orElseSucceed(() => "")
  )
})

/** Calls `changed` with each new version of the report, and `tick` at every look. Ends only when interrupted. */
const looking = <E, R, E2, R2>(
  path: string,
  first: Shown,
  changed: (seen: Result.Result<Shown, { readonly message: string }>) => Effect.Effect<void, E, R>,
  tick: Effect.Effect<void, E2, R2>
) =>
  Effect.gen(function* () {
    let version = yield* versionOf(path)
    yield* changed(Result.succeed(first))
    let last = first
    for (;;) {
      yield* tick
      yield* Effect.sleep(LOOK_EVERY)
      const next = yield* versionOf(path)
      if (next === version) continue
      version = next
      const seen = yield* Effect.result(look(path, last))
      if (Result.isSuccess(seen)) last = seen.success
      yield* changed(seen)
    }
  })

const onScreen = (path: string, first: Shown) =>
  Effect.gen(function* () {
    const terminal = yield* Terminal.Terminal
    yield* Effect.acquireRelease(terminal.display(ALTERNATE), () => Effect.orDie(terminal.display(NORMAL)))
    let shown = first
    let problem: string | undefined
    let looks = 0
    const redraw = Effect.suspend(() =>
      Effect.flatMap(lines(shown), (all) =>
        draw(problem === undefined ? all : [printable(problem), "", ...all])
      )
    )
    return yield* looking(
      path,
      first,
      (seen) => {
        if (Result.isSuccess(seen)) shown = seen.success
        problem = Result.isSuccess(seen) ? undefined : seen.failure.message
        return redraw
      },
      Effect.suspend(() => (++looks % LOOKS_PER_SECOND === 0 ? redraw : Effect.void))
    )
  }).pipe(Effect.scoped)

/** One version after the other, for a program or a file. */
const inLines = (path: string, first: Shown, json: boolean) =>
  looking(
    path,
    first,
    (seen) =>
      Result.isFailure(seen)
        ? Console.error(printable(seen.failure.message))
        : json
          ? Console.log(oneLine(seen.success.text))
          : Effect.flatMap(lines(seen.success), (all) => Console.log(`${all.join("\n")}\n`)),
    Effect.void
  )

/** Shows the report whenever it changes, until interrupted; fails when there is none to begin with. */
export const watchStatus = Effect.fnUntraced(function* (stateDir: string, json: boolean) {
  const path = reportFile(stateDir)
  const first = yield* look(path)
  const { canAnimate } = yield* TerminalCapabilities.TerminalCapabilities
  yield* canAnimate && !json ? onScreen(path, first) : inLines(path, first, json)
})
