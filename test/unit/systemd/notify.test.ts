/** What systemd hears of a daemon. */
import { execFileSync, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { temporaryDirectory } from "../../support/temporary.ts"

const support = path.join(import.meta.dirname, "../../support")

/** A program and all that it prints, once it has ended. */
const running = (program: string, args: ReadonlyArray<string>, env: Record<string, string>) => {
  const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"] })
  let said = ""
  const ended = new Promise<{ readonly code: number | null; readonly said: string }>((resolve) => {
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (piece: Buffer) => {
        said += piece.toString()
      })
    child.on("close", (code) => resolve({ code, said }))
  })
  const spoke = new Promise<void>((resolve) => child.stdout.once("data", () => resolve()))
  return { child, ended, spoke }
}

/** A socket as systemd makes one, and what is heard on it. */
const listening = Effect.fnUntraced(function* (name: (folder: string) => string) {
  const folder = yield* temporaryDirectory
  const program = path.join(folder, "notify-socket")
  execFileSync("gcc", ["-Wall", "-Werror", "-o", program, path.join(support, "notify-socket.c")])
  const socket = name(folder)
  const listener = running(program, [socket], {})
  yield* Effect.addFinalizer(() => Effect.sync(() => listener.child.kill("SIGKILL")))
  yield* Effect.promise(() => listener.spoke)
  return { socket, heard: Effect.promise(() => listener.ended) }
})

const daemon = (environment: Record<string, string>) =>
  running(process.execPath, [path.join(support, "notify-child.ts")], {
    PATH: process.env.PATH ?? "",
    ...environment
  })

describe("a daemon that systemd has started", () => {
  for (const [kind, name] of [
    ["a path", (folder: string) => path.join(folder, "notify.sock")],
    ["an abstract name", (folder: string) => `@nibrunner/${path.basename(folder)}`]
  ] as const) {
    it.live(
      `says READY=1 in its own name on a socket with ${kind}, and tells its children nothing of it`,
      () =>
        Effect.gen(function* () {
          const { heard, socket } = yield* listening(name)
          const child = daemon({ NOTIFY_SOCKET: socket })
          assert.deepStrictEqual(yield* Effect.promise(() => child.ended), { code: 0, said: "none\n" })
          const lines = (yield* heard).said.split("\n")
          // only root may name its parent; the others must have NotifyAccess=all
          const sender = process.getuid?.() === 0 ? child.child.pid : "\\d+"
          assert.match(lines[1] ?? "", new RegExp(`^${sender} READY=1$`, "u"))
        })
    )
  }

  it.live("says nothing where nobody asks, and goes on with a warning where nobody listens", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* Effect.promise(() => daemon({}).ended), { code: 0, said: "none\n" })
      const folder = yield* temporaryDirectory
      const gone = path.join(folder, "gone")
      const { code, said } = yield* Effect.promise(() => daemon({ NOTIFY_SOCKET: gone }).ended)
      assert.strictEqual(code, 0)
      assert.match(said, /systemd could not be told that this daemon serves/u)
      assert.isFalse(fs.existsSync(gone))
    })
  )
})
