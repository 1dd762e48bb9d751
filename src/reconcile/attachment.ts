/**
 * This daemon's hold on one microVM: the watch for its end, its output and its health, as fibers in one scope.
 * Closing the scope lets go of the microVM; it does not end it.
 */
import { Clock, Deferred, Effect, Exit, Fiber, Option, Queue, Scope } from "effect"
import type { DesiredInstance } from "../document/schema.ts"
import { timed } from "../metrics/host-metrics.ts"
import { GuestError, type GuestEvent, type GuestSession, type PortProbe } from "../services/Guest.ts"
import type { ProbeResult } from "../services/HealthProber.ts"
import type { Machine } from "../services/Hypervisor.ts"
import { type Health, nextProbeMs, observe, probeOutcome, probeSettings } from "./health.ts"
import type { HostContext } from "./host-context.ts"
import { measureWhileHeld } from "./measuring.ts"
import type { AppMessage, Attachment } from "./model.ts"

/** How long what a guest said last may take to arrive after its VMM has ended. */
const lastWordsMs = 2_000

type Post = (message: AppMessage) => Effect.Effect<void>

const ofPort = (outcome: PortProbe, timeoutMs: number): ProbeResult => {
  switch (outcome) {
    case "accepted":
      return { kind: "answered", status: 0 }
    case "timed-out":
      return { kind: "timed-out", ms: timeoutMs }
    case "refused":
      return { kind: "refused" }
    case "failed":
      return { kind: "failed", reason: "the guest could not open a connection" }
  }
}

/** A connection to the app's port from inside the guest: the network may accept before the guest does. */
const knock = ({ instance, session }: Attachment, timeoutMs: number): Effect.Effect<ProbeResult> =>
  Deferred.await(session).pipe(
    Effect.flatMap((guest) => guest.probe(instance.config.httpPort, timeoutMs)),
    Effect.map((outcome) => ofPort(outcome, timeoutMs)),
    Effect.catchTag("GuestError", (error) =>
      Effect.succeed<ProbeResult>({ kind: "failed", reason: error.message })
    ),
    Effect.timeoutOrElse({
      duration: timeoutMs,
      orElse: () => Effect.succeed<ProbeResult>({ kind: "timed-out", ms: timeoutMs })
    })
  )

/**
 * One probe. A request to a guest whose port is not open yet may hang in the network for as long as it may take
 * at all, so a guest that has not answered yet (`fresh`) is knocked at first.
 */
const probe = (
  host: HostContext,
  attachment: Attachment,
  timeoutMs: number,
  fresh: boolean
): Effect.Effect<ProbeResult> => {
  const { healthCheck: check, httpPort } = attachment.instance.config
  if (check.kind !== "http") return knock(attachment, timeoutMs)
  const ask = host.prober.http({
    ...host.network.reach(attachment.machine.record.slot, httpPort),
    path: check.path,
    timeoutMs
  })
  if (!fresh) return ask
  return Effect.flatMap(knock(attachment, timeoutMs), (open) =>
    open.kind === "answered" ? ask : Effect.succeed(open)
  )
}

const watchHealth = Effect.fnUntraced(function* (
  host: HostContext,
  attachment: Attachment,
  { health: initial, startedAt, listened = false }: AttachmentOptions,
  post: Post
) {
  const { appId, machineId } = attachment.machine.record
  const check = attachment.instance.config.healthCheck
  const { timeoutMs } = probeSettings(check)
  let health = initial
  while (true) {
    const fresh = !health.everHealthy && !listened
    const [seconds, result] = yield* timed(probe(host, attachment, timeoutMs, fresh))
    yield* host.metrics.probed(appId, check.kind, probeOutcome(check, result), seconds)
    const at = yield* Clock.currentTimeMillis
    health = observe(health, check, result, at)
    yield* post({ kind: "probed", machineId, health })
    const delay = nextProbeMs(health, check, at - startedAt)
    if (delay === undefined) return
    yield* Effect.sleep(delay)
  }
})

const notesOf = (event: GuestEvent): string | undefined => {
  switch (event.kind) {
    case "restarting":
      return `${event.reason}; restart ${event.attempt} of ${event.budget} in ${event.backoffMs} ms`
    case "failed":
      return event.reason
    default:
      return undefined
  }
}

/** Writes the app's output to its log and tells the app's fiber of the rest. */
const pumpEvents = Effect.fnUntraced(function* (
  host: HostContext,
  { machine, started }: Attachment,
  session: GuestSession,
  post: Post
) {
  const { appId, machineId } = machine.record
  const log = yield* host.logs.open(appId, session.sessionId)
  const handle = Effect.fnUntraced(function* (event: GuestEvent) {
    if (event.kind === "output") return yield* log.output(event.stream, event.bytes)
    if (event.kind === "gap") return yield* log.gap(event.bytes)
    const note = notesOf(event)
    if (note !== undefined) yield* log.note(note)
    yield* post({ kind: "guest", machineId, event })
    yield* Deferred.succeed(started, undefined)
  })
  while (true) {
    const event = yield* Effect.option(Queue.take(session.events))
    if (Option.isNone(event)) return
    yield* handle(event.value)
  }
}, Effect.scoped)

export interface AttachmentOptions {
  readonly machine: Machine
  readonly instance: DesiredInstance
  /** The scope of the microVM's attachment; its fibers live in it. */
  readonly scope: Scope.Closeable
  /** The conversation, as soon as there is one. */
  readonly session: Deferred.Deferred<GuestSession>
  readonly health: Health
  /** ms since 1970. */
  readonly startedAt: number
  /** Its port was open when it fell asleep, and is so still. */
  readonly listened?: boolean
}

/** Begins to watch a microVM; everything that it tells arrives through `post`. */
export const watch = Effect.fnUntraced(function* (host: HostContext, options: AttachmentOptions, post: Post) {
  const { machine, instance, scope, session } = options
  const started = Deferred.makeUnsafe<void>()
  const attachment: Attachment = {
    machine,
    instance,
    scope,
    session,
    started,
    guest: undefined,
    frozen: false
  }
  const pump = yield* Deferred.await(session).pipe(
    Effect.tap((guest) =>
      Effect.sync(() => {
        attachment.guest = guest
      })
    ),
    Effect.flatMap((guest) => pumpEvents(host, attachment, guest, post)),
    Effect.forkIn(scope)
  )
  yield* Deferred.await(machine.exit).pipe(
    Effect.tap(() => Fiber.await(pump).pipe(Effect.timeoutOption(lastWordsMs))),
    Effect.flatMap((exit) => post({ kind: "exited", machineId: machine.record.machineId, exit })),
    Effect.andThen(Deferred.succeed(started, undefined)),
    Effect.forkIn(scope)
  )
  yield* watchHealth(host, attachment, options, post).pipe(Effect.forkIn(scope))
  yield* measureWhileHeld(host, attachment)
  return attachment
})

/**
 * From the boot spec to the start of the program. A guest mounts its drives meanwhile, in a fifth of a second, emulated on
 * a crowded host in some four; to grow its volume by terabytes takes it some 20 s there, and what it has grown by then it
 * finds at its next boot. A guest that takes so much longer has lost its timer or an interrupt, and waits for ever.
 */
const programStartMs = 120_000

/** Waits until the guest has said what became of the start of its program; one that says nothing hangs. */
export const untilStarted = Effect.fnUntraced(function* (
  host: HostContext,
  { started, machine }: Pick<Attachment, "started" | "machine">
) {
  while (Option.isNone(yield* Deferred.await(started).pipe(Effect.timeoutOption(programStartMs)))) {
    // Who cannot mount its volume now waits for it.
    if (host.volumeTrouble !== undefined || (yield* machine.waitsForVolume)) continue
    return yield* new GuestError({
      operation: "start its program",
      reason: `it took its boot spec and said nothing in ${programStartMs} ms`
    })
  }
})

/** Lets go of the microVM. */
export const letGo = (attachment: Attachment): Effect.Effect<void> => Scope.close(attachment.scope, Exit.void)
