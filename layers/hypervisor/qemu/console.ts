/** A guest's serial console: what it said last, and why its kernel gave up, if it did. */
import { createConnection } from "node:net"
import { Deferred, Effect, type Scope } from "effect"

/** How much of the console is kept, the latest. A guest can print for ever. */
export const CONSOLE_BYTES = 64 * 1024

/** The last `limit` bytes of what is added. */
export interface Tail {
  readonly add: (piece: Uint8Array) => void
  /** As text: whatever is no UTF-8 becomes U+FFFD. */
  readonly text: () => string
}

export const makeTail = (limit: number): Tail => {
  let pieces: Array<Uint8Array> = []
  let total = 0
  const compact = () => {
    const last = Buffer.concat(pieces).subarray(-limit)
    pieces = [last]
    total = last.length
    return last
  }
  return {
    add: (piece) => {
      pieces.push(piece)
      total += piece.length
      if (total > 2 * limit) compact()
    },
    text: () => new TextDecoder().decode(compact())
  }
}

/** The kernel's own words for its last panic, without its timestamp; none when it did not panic. */
export const panicReason = (console: string): string | undefined => {
  const lines = console.split(/\r?\n/u)
  const line = lines.findLast((text) => text.includes("Kernel panic - not syncing: "))
  const words = line
    ?.split("Kernel panic - not syncing: ")[1]
    ?.replace(/\p{Cc}/gu, "\ufffd")
    .trim()
  if (words === undefined || words === "") return undefined
  // With too little memory no program is left that could be ended to make room.
  const remedy = words.startsWith("System is deadlocked on memory")
    ? "; it needs more config.resources.memoryMib"
    : ""
  return `the guest's kernel panicked: ${words.slice(0, 200)}${remedy}`
}

/** A console that is being read. */
export interface Console extends Tail {
  /** Done when QEMU has hung up and all it had said is in the tail. */
  readonly closed: Deferred.Deferred<void>
  /** Waits until something is found in the tail: looks now, and whenever something is added. */
  readonly until: <A>(look: (text: string) => A | undefined) => Effect.Effect<A>
}

/**
 * Reads the console socket for as long as the scope is open, and keeps its end. Succeeds when it is connected. A
 * console that cannot be had is no reason to end a guest: it is empty, and closed.
 */
export const readConsole = (path: string): Effect.Effect<Console, never, Scope.Scope> =>
  Effect.gen(function* () {
    const tail = makeTail(CONSOLE_BYTES)
    const closed = yield* Deferred.make<void>()
    const settled = yield* Deferred.make<void>()
    const lookers = new Set<() => void>()
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        const socket = createConnection({ path })
        socket.on("data", (piece: Uint8Array) => {
          tail.add(piece)
          for (const look of lookers) look()
        })
        socket.on("error", () => socket.destroy())
        socket.on("connect", () => Deferred.doneUnsafe(settled, Effect.void))
        socket.on("close", () => {
          Deferred.doneUnsafe(settled, Effect.void)
          Deferred.doneUnsafe(closed, Effect.void)
        })
        return socket
      }),
      (socket) => Effect.sync(() => socket.destroy())
    )
    yield* Deferred.await(settled)
    const until: Console["until"] = (look) =>
      Effect.callback((resume) => {
        const again = () => {
          const found = look(tail.text())
          if (found === undefined) return
          lookers.delete(again)
          resume(Effect.succeed(found))
        }
        lookers.add(again)
        again()
        return Effect.sync(() => lookers.delete(again))
      })
    return { ...tail, closed, until }
  })
