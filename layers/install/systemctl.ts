/** systemd, by its `systemctl`. */
import { Effect } from "effect"
import { runProgram } from "./command.ts"

/** A start may wait for a store, and the daemon reads its whole image. Seconds. */
const LIMIT_SECONDS = 300

/** What systemd was asked for did not happen: a clause. */
export interface Refused {
  readonly reason: string
}

const systemctl = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  const ended = yield* runProgram("systemctl", args, LIMIT_SECONDS)
  if (ended.code === 0) return ended.stdout
  const reason =
    ended.code === undefined
      ? `systemctl ${args.join(" ")} did not end within ${LIMIT_SECONDS} s; its job is still queued`
      : `systemctl ${args.join(" ")}: ${ended.firstWord}`
  return yield* Effect.fail<Refused>({ reason })
})

/** How a unit is. */
export interface UnitState {
  /** `active`, `inactive`, `failed`, `activating` and so on. */
  readonly state: string
  /** When what runs was started, in milliseconds since 1970; undefined where nothing runs. */
  readonly startedAt: number | undefined
}

/** `Mon 2026-11-30 19:33:00.123456 UTC`; microseconds are cut off. */
export const readTimestamp = (text: string): number | undefined => {
  const [, date, time, fraction = ""] =
    /(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))? UTC$/u.exec(text.trim()) ?? []
  if (date === undefined || time === undefined) return undefined
  return Date.parse(`${date}T${time}.${fraction.padEnd(3, "0").slice(0, 3)}Z`)
}

const valueOf = (shown: string, name: string): string =>
  shown
    .split("\n")
    .find((line) => line.startsWith(`${name}=`))
    ?.slice(name.length + 1) ?? ""

export const daemonReload = systemctl("daemon-reload")

export const enable = (units: ReadonlyArray<string>) => systemctl("enable", ...units)

/** A service's main process, a mount's own moment. */
export const unitState = (unit: string) =>
  systemctl(
    "show",
    "--property=ActiveState,ExecMainStartTimestamp,ActiveEnterTimestamp",
    "--timestamp=us+utc",
    unit
  ).pipe(
    Effect.map((shown): UnitState => {
      const state = valueOf(shown, "ActiveState")
      const began = valueOf(shown, "ExecMainStartTimestamp") || valueOf(shown, "ActiveEnterTimestamp")
      return { state, startedAt: state === "active" ? readTimestamp(began) : undefined }
    })
  )

/** Waits until systemd says that it is done. */
export const startUnit = (unit: string) => systemctl("start", unit)
export const restartUnit = (unit: string) => systemctl("restart", unit)

/** Has systemd forget how often a unit has failed: else it refuses to start it. */
export const resetFailed = (unit: string) => systemctl("reset-failed", unit)
