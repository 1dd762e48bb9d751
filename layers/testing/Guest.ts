/** Conversations with the guests of a `FakeHost`. */
import { type Cause, Deferred, Effect, Layer, Queue } from "effect"
import { Guest, GuestError, type GuestEvent, type GuestSession } from "../../src/services/Guest.ts"
import type { FakeHost } from "./FakeHost.ts"

/**
 * Guests of the given world. The bound of a session's queue is not played: nothing here floods. A program that listens
 * sends every datagram back to whom it came from.
 */
export const layerGuest = (host: FakeHost) =>
  Layer.effect(
    Guest,
    Effect.sync(() => {
      const { take, finish, live, background, portAnswers, usageOf, nextSession } = host.internal

      return Guest.of({
        connect: (attached, timeoutMs) =>
          Effect.gen(function* () {
            const { appId, machineId } = attached.record
            const error = (operation: string) => (reason: string) => new GuestError({ operation, reason })
            yield* take({ step: "connect", subject: appId, machineId }, error("say hello"))
            const machine = host.machines.find((candidate) => candidate.record.machineId === machineId)
            if (machine === undefined) return yield* error("say hello")("its VMM has ended")

            yield* Effect.raceFirst(
              Deferred.await(machine.hello),
              Deferred.await(machine.ended).pipe(
                Effect.andThen(Effect.fail(error("say hello")("its VMM has ended")))
              )
            ).pipe(
              Effect.timeoutOrElse({
                duration: timeoutMs,
                orElse: () => Effect.fail(error("say hello")(`PID 1 said nothing in ${timeoutMs} ms`))
              })
            )

            const events = yield* Queue.unbounded<GuestEvent, Cause.Done>()
            if (machine.session !== undefined) yield* Queue.end(machine.session)
            machine.session = events
            yield* Queue.offerAll(events, machine.backlog.splice(0))
            yield* Effect.addFinalizer(() =>
              Effect.gen(function* () {
                if (machine.session === events) {
                  machine.session = undefined
                  // What was not taken was not acknowledged: the next conversation is told it.
                  machine.backlog.unshift(...(yield* Queue.clear(events)))
                }
                yield* Queue.end(events)
              })
            )

            const call = { subject: appId, machineId }
            const ask = (
              step:
                | "hand-over"
                | "probe"
                | "usage"
                | "shutdown"
                | "freeze"
                | "thaw"
                | "freeze-volume"
                | "thaw-volume",
              operation: string,
              extra: object
            ) =>
              take({ step, ...call, ...extra }, error(operation)).pipe(
                Effect.andThen(
                  Effect.suspend(() =>
                    Deferred.isDoneUnsafe(machine.ended)
                      ? Effect.fail(error(operation)("its VMM has ended"))
                      : machine.session === events
                        ? Effect.void
                        : Effect.fail(error(operation)("the conversation has ended"))
                  )
                )
              )

            const session: GuestSession = {
              sessionId: `${machineId}-${nextSession()}`,
              phase: machine.frozen === undefined ? machine.phase : "frozen",
              events,
              handOver: (bootSpec) =>
                Effect.gen(function* () {
                  yield* ask("hand-over", "take its boot spec", { bootSpec })
                  if (machine.phase !== "awaiting-spec") {
                    return yield* error("take its boot spec")("it has one already")
                  }
                  machine.bootSpec = bootSpec
                  machine.clockOffsetMs = 0
                  machine.phase = "starting"
                  yield* live(machine)
                }),
              probe: (port) =>
                ask("probe", `connect to port ${port}`, { ports: [port] }).pipe(
                  Effect.map(() => portAnswers.get(appId) ?? (machine.listening ? "accepted" : "refused"))
                ),
              usage: (limitMs) =>
                ask("usage", "tell what it uses", {}).pipe(
                  Effect.andThen(usageOf(machine)),
                  Effect.timeoutOrElse({
                    duration: limitMs,
                    orElse: () => Effect.fail(error("tell what it uses")(`it said nothing in ${limitMs} ms`))
                  })
                ),
              shutdown: () =>
                Effect.gen(function* () {
                  yield* ask("shutdown", "shut down", {})
                  machine.frozen = undefined
                  machine.volumeFrozen = undefined
                  machine.phase = "stopping"
                  const after = machine.script.shutdownAfterMs
                  const end = finish(machine, { kind: "exited", code: 0 })
                  if (after === 0) yield* end
                  else if (after !== "never") yield* background(Effect.sleep(after).pipe(Effect.andThen(end)))
                }),
              freeze: (leaseMs) =>
                Effect.gen(function* () {
                  yield* ask("freeze", "freeze its program", {})
                  if (
                    machine.phase !== "running" ||
                    machine.frozen !== undefined ||
                    machine.volumeFrozen !== undefined
                  ) {
                    return yield* error("freeze its program")(
                      "its program does not run or does not stand still"
                    )
                  }
                  const freeze = {}
                  machine.frozen = freeze
                  yield* background(
                    Effect.sleep(leaseMs).pipe(
                      Effect.andThen(
                        Effect.sync(() => {
                          if (machine.frozen === freeze && !machine.paused) machine.frozen = undefined
                        })
                      )
                    )
                  )
                }),
              thaw: Effect.gen(function* () {
                yield* ask("thaw", "thaw its program", {})
                machine.clockOffsetMs = 0
                machine.frozen = undefined
              }),
              freezeVolume: (leaseMs) =>
                Effect.gen(function* () {
                  yield* ask("freeze-volume", "freeze its volume", {})
                  const ready = machine.phase === "running" || machine.phase === "backing-off"
                  if (!ready || machine.frozen !== undefined || machine.volumeFrozen !== undefined) {
                    return yield* error("freeze its volume")("it cannot do that in the phase that it is in")
                  }
                  const freeze = {}
                  machine.volumeFrozen = freeze
                  yield* background(
                    Effect.sleep(leaseMs).pipe(
                      Effect.andThen(
                        Effect.sync(() => {
                          if (machine.volumeFrozen === freeze) machine.volumeFrozen = undefined
                        })
                      )
                    )
                  )
                }),
              thawVolume: Effect.gen(function* () {
                yield* ask("thaw-volume", "thaw its volume", {})
                const held = machine.volumeFrozen !== undefined
                machine.volumeFrozen = undefined
                return held ? "held" : "lapsed"
              }),
              datagrams: {
                open: (_port, onReply) => {
                  let open = true
                  return {
                    send: (bytes) => {
                      const copy = bytes.slice()
                      queueMicrotask(() => {
                        const heard =
                          open &&
                          machine.session === events &&
                          machine.listening &&
                          machine.frozen === undefined
                        if (heard && !Deferred.isDoneUnsafe(machine.ended)) onReply(copy)
                      })
                    },
                    close: () => {
                      open = false
                    }
                  }
                }
              }
            }
            return session
          })
      })
    })
  )
