/** Conversations with PID 1 over the unix socket of its virtio-serial port. */
import { randomBytes } from "node:crypto"
import { Deferred, Effect, Exit, Layer, Queue } from "effect"
import { Guest, GuestError, type GuestSession } from "../../../src/services/Guest.ts"
import type { Machine } from "../../../src/services/Hypervisor.ts"
import { type Channel, converse, type Ending } from "./channel.ts"
import { makeDatagrams } from "./datagrams.ts"
import { makeEvents } from "./events.ts"
import { makeRequests } from "./requests.ts"

/** How long PID 1 is waited for when a conversation is taken up again. */
const REHELLO_MS = 30_000
/** The first wait before another connection, and the longest. Bytes that are no records cost a guest more. */
const RETRY_MS = { first: 50, afterMalformed: 1_000, longest: 30_000 }

/** Where requests find the connection of the moment, if there is one. */
const makeSwitchboard = () => {
  let current: Channel | undefined
  let over: string | undefined
  let next = Deferred.makeUnsafe<Channel, string>()
  return {
    /** Undefined while there is no connection. */
    now: () => current,
    channel: Effect.suspend(() => {
      if (over !== undefined) return Effect.fail(over)
      return current === undefined ? Deferred.await(next) : Effect.succeed(current)
    }),
    connected: (channel: Channel) =>
      Effect.sync(() => {
        current = channel
        Deferred.doneUnsafe(next, Effect.succeed(channel))
        next = Deferred.makeUnsafe()
      }),
    disconnected: () => {
      current = undefined
    },
    close: (reason: string) => {
      over ??= reason
      current = undefined
      Deferred.doneUnsafe(next, Effect.fail(over))
    }
  }
}

const connect = (machine: Machine, timeoutMs: number) =>
  Effect.gen(function* () {
    const { appId } = machine.record
    const { path } = machine.channel
    const events = yield* makeEvents
    const line = makeSwitchboard()
    const datagrams = makeDatagrams(appId, line.now)
    let wait = RETRY_MS.first
    let complained = false
    let last: string | undefined

    const complain = (ending: Ending) => {
      if (ending.kind !== "malformed" || complained) return Effect.void
      complained = true
      return Effect.logWarning(
        `the guest of ${appId} says what no guest says; the conversation is begun anew: ${ending.reason}`
      )
    }

    /** Connection after connection, until the VMM has ended and all that it had said is read. */
    const converseOn = Effect.gen(function* () {
      let first = true
      while (true) {
        const ending = yield* converse(
          path,
          events,
          datagrams,
          first ? timeoutMs : REHELLO_MS,
          line.connected
        )
        line.disconnected()
        if (ending.greeted) first = false
        last = ending.reason
        yield* complain(ending)
        wait =
          ending.kind === "malformed"
            ? Math.max(wait, RETRY_MS.afterMalformed)
            : ending.greeted
              ? RETRY_MS.first
              : wait
        const ended = yield* Deferred.await(machine.exit).pipe(Effect.timeoutOption(wait))
        if (ended._tag === "Some") return
        wait = Math.min(wait * 2, RETRY_MS.longest)
      }
    }).pipe(
      Effect.onExit((exit) =>
        Effect.suspend(() => {
          line.close(Exit.isSuccess(exit) ? "its VMM has ended" : "the conversation was ended")
          return Queue.end(events.queue)
        })
      )
    )
    yield* Effect.forkScoped(converseOn)
    yield* Effect.forkScoped(datagrams.complain)

    const channel = yield* line.channel.pipe(
      Effect.mapError((reason) => new GuestError({ operation: "say hello", reason })),
      Effect.timeoutOrElse({
        duration: timeoutMs,
        orElse: () =>
          Effect.fail(
            new GuestError({
              operation: "say hello",
              reason: `PID 1 said nothing in ${timeoutMs} ms${last === undefined ? "" : ` (${last})`}`
            })
          )
      })
    )
    const session: GuestSession = {
      sessionId: randomBytes(8).toString("hex"),
      phase: channel.phase,
      events: events.queue,
      datagrams: datagrams.path,
      ...(yield* makeRequests(line))
    }
    return session
  })

/** For machines whose channel is a unix socket that takes one connection at a time. */
export const layerVirtioSerialGuest: Layer.Layer<Guest> = Layer.succeed(Guest, { connect })
