/** What the host asks of PID 1, over whichever connection there is. */
import { Clock, Deferred, Effect, Semaphore } from "effect"
import {
  GuestError,
  type GuestSession,
  type GuestUsage,
  type PortProbe,
  type VolumeThaw
} from "../../../src/services/Guest.ts"
import {
  type HostRecord,
  HostType,
  type ReceiptOutcome,
  VOLUME_FREEZE_SINCE
} from "../../../src/wire/records.ts"
import type { Channel } from "./channel.ts"

/** The channel of the moment. */
export interface Line {
  /** The channel as soon as there is one; fails with the reason when there will be none any more. */
  readonly channel: Effect.Effect<Channel, string>
}

/** What PID 1 may take to answer beyond the time that the request itself takes. */
const ANSWER_MS = 10_000
/** How long a boot spec may take to be taken, reconnections included. */
const HAND_OVER_MS = 60_000

/** PID 1 has room for 16 connection attempts at a time, some of which may be those of an earlier daemon. */
const PROBES_AT_ONCE = 8

const failing = (operation: string) => (reason: string) => new GuestError({ operation, reason })

const bounded =
  (operation: string, ms: number) =>
  <A>(effect: Effect.Effect<A, string>): Effect.Effect<A, GuestError> =>
    effect.pipe(
      Effect.mapError(failing(operation)),
      Effect.timeoutOrElse({
        duration: ms,
        orElse: () => Effect.fail(failing(operation)(`it said nothing in ${ms} ms`))
      })
    )

/** The answer to a record, or the reason why the connection that it was asked on has ended. */
const ask = <K, A>(
  channel: Channel,
  record: HostRecord,
  waiting: Map<K, Deferred.Deferred<A>>,
  key: K
): Effect.Effect<A, { readonly lost?: string; readonly refused?: string }> =>
  Effect.gen(function* () {
    const answered = yield* Deferred.make<A>()
    waiting.set(key, answered)
    yield* channel.send(record).pipe(Effect.mapError((refused) => ({ refused })))
    return yield* Effect.raceFirst(
      Deferred.await(answered),
      Deferred.await(channel.lost).pipe(Effect.flatMap((lost) => Effect.fail({ lost })))
    )
  }).pipe(
    Effect.ensuring(
      Effect.sync(() => {
        waiting.delete(key)
      })
    )
  )

const plain = (failure: { readonly lost?: string; readonly refused?: string }) =>
  failure.lost ?? failure.refused ?? ""

const REFUSALS: Record<Exclude<ReceiptOutcome, "taken">, string> = {
  "not-now": "it cannot do that in the phase that it is in",
  "not-understood": "it did not understand the request (is the guest image as old as the running guest?)"
}

const TOO_OLD = "its guest image is too old for that; it has the present one after the app's next boot"

const orRefused =
  (refusals: typeof REFUSALS) =>
  (outcome: ReceiptOutcome): Effect.Effect<void, string> =>
    outcome === "taken" ? Effect.void : Effect.fail(refusals[outcome])

const taken = orRefused(REFUSALS)

/** PID 1 says the same to all of these. */
const frozen = orRefused({
  ...REFUSALS,
  "not-now":
    "its program does not run or does not stand still, or its volume cannot be written or is frozen for a copy"
})

export const makeRequests = (
  line: Line
): Effect.Effect<Omit<GuestSession, "sessionId" | "phase" | "events" | "datagrams">> =>
  Effect.gen(function* () {
    // A receipt names only the type of what it is for: one request of a type at a time.
    const oneHandOver = yield* Semaphore.make(1)
    const oneShutdown = yield* Semaphore.make(1)
    const oneFreeze = yield* Semaphore.make(1)
    const oneThaw = yield* Semaphore.make(1)
    const oneVolumeFreeze = yield* Semaphore.make(1)
    const oneVolumeThaw = yield* Semaphore.make(1)
    const fewProbes = yield* Semaphore.make(PROBES_AT_ONCE)
    let lastId = 0
    const nextId = () => {
      lastId = lastId === 0xffffffff ? 1 : lastId + 1
      return lastId
    }

    const receipt = (channel: Channel, record: HostRecord, type: number) =>
      ask(channel, record, channel.receipts, type)

    const handOver: GuestSession["handOver"] = (spec) => {
      /** After a lost connection only the guest's phase tells whether it had taken the spec. */
      const attempt = (again: boolean): Effect.Effect<void, string> =>
        Effect.gen(function* () {
          const channel = yield* line.channel
          if (channel.phase !== "awaiting-spec") {
            return yield* again ? Effect.void : Effect.fail("it has a boot spec already")
          }
          yield* receipt(channel, { kind: "boot-spec", spec }, HostType.bootSpec).pipe(
            Effect.matchEffect({
              onSuccess: taken,
              onFailure: (failure) =>
                failure.lost === undefined ? Effect.fail(plain(failure)) : attempt(true)
            })
          )
        })
      return oneHandOver.withPermits(1)(attempt(false)).pipe(bounded("take its boot spec", HAND_OVER_MS))
    }

    const probe: GuestSession["probe"] = (port, timeoutMs) =>
      Effect.gen(function* () {
        const channel = yield* line.channel
        const id = nextId()
        const request = { kind: "probe", id, port, timeoutMs } as const
        return yield* ask<number, PortProbe>(channel, request, channel.probes, id).pipe(
          Effect.mapError(plain)
        )
      }).pipe(bounded(`connect to its port ${port}`, timeoutMs + ANSWER_MS), fewProbes.withPermits(1))

    const usage: GuestSession["usage"] = (timeoutMs) =>
      Effect.gen(function* () {
        const channel = yield* line.channel
        const id = nextId()
        return yield* ask<number, GuestUsage>(channel, { kind: "usage", id }, channel.usages, id).pipe(
          Effect.mapError(plain)
        )
      }).pipe(bounded("tell what it uses", timeoutMs))

    const shutdown: GuestSession["shutdown"] = (graceMs) =>
      Effect.gen(function* () {
        const channel = yield* line.channel
        yield* receipt(channel, { kind: "shutdown", graceMs }, HostType.shutdown).pipe(
          Effect.mapError(plain),
          Effect.flatMap(taken)
        )
      }).pipe(oneShutdown.withPermits(1), bounded("shut down", ANSWER_MS))

    const freeze: GuestSession["freeze"] = (leaseMs) =>
      Effect.gen(function* () {
        const channel = yield* line.channel
        yield* receipt(channel, { kind: "freeze", leaseMs }, HostType.freeze).pipe(
          Effect.mapError(plain),
          Effect.flatMap(frozen)
        )
      }).pipe(oneFreeze.withPermits(1), bounded("freeze its program", leaseMs))

    /** Told twice it does no harm: after a lost connection it is told again, with the time of then. */
    const tellThaw: Effect.Effect<void, string> = Effect.gen(function* () {
      const channel = yield* line.channel
      const hostTime = yield* Clock.currentTimeMillis
      yield* receipt(channel, { kind: "thaw", hostTime }, HostType.thaw).pipe(
        Effect.matchEffect({
          onSuccess: taken,
          onFailure: (failure) =>
            failure.lost === undefined
              ? Effect.fail(plain(failure))
              : Effect.andThen(Effect.yieldNow, tellThaw)
        })
      )
    })
    const thaw: GuestSession["thaw"] = tellThaw.pipe(
      oneThaw.withPermits(1),
      bounded("thaw its program", ANSWER_MS)
    )

    const freezeVolume: GuestSession["freezeVolume"] = (leaseMs) =>
      Effect.gen(function* () {
        const channel = yield* line.channel
        if (channel.version < VOLUME_FREEZE_SINCE) return yield* Effect.fail(TOO_OLD)
        yield* receipt(channel, { kind: "freeze-volume", leaseMs }, HostType.freezeVolume).pipe(
          Effect.mapError(plain),
          Effect.flatMap(taken)
        )
      }).pipe(oneVolumeFreeze.withPermits(1), bounded("freeze its volume", leaseMs))

    /** An older guest freezes none. Told again after a lost connection, so that the volume is thawed in any case. */
    const tellThawVolume: Effect.Effect<VolumeThaw, string> = Effect.gen(function* () {
      const channel = yield* line.channel
      if (channel.version < VOLUME_FREEZE_SINCE) return "lapsed" as const
      return yield* receipt(channel, { kind: "thaw-volume" }, HostType.thawVolume).pipe(
        Effect.matchEffect({
          onSuccess: (outcome) =>
            outcome === "not-understood"
              ? Effect.fail(REFUSALS[outcome])
              : Effect.succeed(outcome === "taken" ? ("held" as const) : ("lapsed" as const)),
          onFailure: (failure) =>
            failure.lost === undefined
              ? Effect.fail(plain(failure))
              : Effect.yieldNow.pipe(Effect.andThen(tellThawVolume), Effect.as("lapsed" as const))
        })
      )
    })
    const thawVolume: GuestSession["thawVolume"] = tellThawVolume.pipe(
      oneVolumeThaw.withPermits(1),
      bounded("thaw its volume", ANSWER_MS)
    )

    return { handOver, probe, usage, shutdown, freeze, thaw, freezeVolume, thawVolume }
  })
