/**
 * What the demo shows: one line for each step with its time. On a terminal the line of the step that runs is alive;
 * elsewhere a line is written when its step is done. `NO_COLOR` is kept.
 */
import { Clock, Effect, Fiber, Ref } from "effect"

const out = process.stdout
const isLive = out.isTTY === true
const hasColor = isLive && !process.env.NO_COLOR

const paint = (code: string) => (text: string) => (hasColor ? `\x1b[${code}m${text}\x1b[0m` : text)
const green = paint("32")
const red = paint("31")
const dim = paint("2")
const bold = paint("1")

const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
const NAME_WIDTH = 10
const FRAME_MS = 80

const write = (text: string) => Effect.sync(() => void out.write(text))

export const line = (text = "") => write(`${text}\n`)
export const title = (text: string) => line(`\n${bold(text)}\n`)

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`

/** One line, cut to the terminal's width so that it can be written over. */
const row = (mark: string, name: string, ms: number, detail: string) => {
  const head = `  ${mark} ${name.padEnd(NAME_WIDTH)} ${seconds(ms).padStart(7)}  `
  const room = isLive ? Math.max(10, (out.columns ?? 80) - NAME_WIDTH - 16) : Number.POSITIVE_INFINITY
  return `${head}${dim(detail.length > room ? `${detail.slice(0, room - 1)}…` : detail)}`
}

/** Says what a step is doing right now. */
export type Note = (text: string) => Effect.Effect<void>

/**
 * Runs one step under its name. `done` puts what came of it into words for the line that stays. A step that fails
 * or is interrupted leaves a line that says so.
 */
export const step = <A, E, R>(
  name: string,
  run: (note: Note) => Effect.Effect<A, E, R>,
  done: (value: A) => string
): Effect.Effect<A, E, R> =>
  Effect.gen(function* () {
    const started = yield* Clock.currentTimeMillis
    const doing = yield* Ref.make("")
    const elapsed = Effect.map(Clock.currentTimeMillis, (now) => now - started)
    const draw = Effect.gen(function* () {
      for (let frame = 0; ; frame++) {
        const mark = frames[frame % frames.length] ?? ""
        yield* write(`\r\x1b[2K${row(mark, name, yield* elapsed, yield* Ref.get(doing))}`)
        yield* Effect.sleep(FRAME_MS)
      }
    })
    const settle = (mark: string, detail: string) =>
      Effect.flatMap(elapsed, (ms) => write(`${isLive ? "\r\x1b[2K" : ""}${row(mark, name, ms, detail)}\n`))

    const drawing = isLive ? yield* Effect.forkChild(draw) : undefined
    const stopDrawing = drawing ? Fiber.interrupt(drawing) : Effect.void
    return yield* run((text) => Ref.set(doing, text)).pipe(
      Effect.onExit((exit) =>
        Effect.andThen(
          stopDrawing,
          exit._tag === "Success" ? settle(green("✔"), done(exit.value)) : settle(red("✖"), "")
        )
      )
    )
  })

/** A page as text: what a reader sees of it. */
export const textOf = (html: string): ReadonlyArray<string> =>
  html
    .replace(/<(style|title)>.*?<\/\1>|<[^>]*>/gsu, "")
    .split("\n")
    .map((text) => text.trim())
    .filter((text) => text !== "")

/** Shows a page in a frame, under the command that fetches it. */
export const page = (command: string, status: string, html: string) =>
  Effect.gen(function* () {
    yield* line(`\n  ${dim("$")} ${bold(command)}\n`)
    yield* line(`  ${dim("│")} ${dim(status)}`)
    for (const text of textOf(html)) yield* line(`  ${dim("│")} ${text}`)
    yield* line()
  })

/** One line of the app's own output. */
export const appLine = (text: string) => line(`  ${dim(text)}`)

export const hint = (text: string) => line(`  ${text}`)
export const failure = (text: string) =>
  Effect.sync(() => void process.stderr.write(`\n${red("error:")} ${text}\n`))
