/**
 * Keeps the ruleset in force: loads it whole whenever what it says changes, and again when another program has touched
 * it. One load at a time; whoever asks meanwhile is served by the next.
 */
import { randomBytes } from "node:crypto"
import { Effect, Queue, Schedule, Semaphore, Stream } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"
import { type CounterReading, readCounters } from "../../../src/network/readings.ts"
import {
  type CounterName,
  type RulesetInput,
  renderRuleset,
  STAMP_CHAIN,
  TABLE
} from "../../../src/network/ruleset.ts"
import type { PortForward } from "../../../src/services/Network.ts"
import { CommandFailed, environment, runCommand } from "./command.ts"
import { allowForwarding } from "./forwarding.ts"

/** How long the kernel's reports of changes have to be quiet before they are judged: a load makes many. */
const QUIET = "200 millis"
/** Between two attempts to load what could not be loaded. */
const AGAIN = Schedule.spaced("1 second")
/** What `nft monitor` may take until it listens. */
const LISTENING = "500 millis"
/** Between two attempts to listen. */
const LISTEN_AGAIN = Schedule.spaced("3 seconds")
/** Between two looks at the ruleset, for a report that was lost. */
const LOOK = "10 seconds"

type Totals = Record<CounterName, { packets: number; bytes: number }>

const nothing = (): Totals => ({
  received: { packets: 0, bytes: 0 },
  sent: { packets: 0, bytes: 0 },
  arrivals: { packets: 0, bytes: 0 }
})

const plus = (totals: Totals, { counter, packets, bytes }: CounterReading): Totals => ({
  ...totals,
  [counter]: { packets: totals[counter].packets + packets, bytes: totals[counter].bytes + bytes }
})

const same = (left: ReadonlyArray<PortForward> | undefined, right: ReadonlyArray<PortForward>): boolean =>
  left?.length === right.length &&
  left.every((one, at) => one.hostPort === right[at]?.hostPort && one.guestPort === right[at]?.guestPort)

export type KeeperOptions = Pick<RulesetInput, "denied" | "forwardedOn">

export const makeKeeper = Effect.fnUntraced(function* (options: KeeperOptions) {
  const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
  const run = (...args: Parameters<typeof runCommand>) =>
    Effect.provideService(runCommand(...args), ChildProcessSpawner.ChildProcessSpawner, spawner)

  const loading = yield* Semaphore.make(1)
  const slots = new Map<number, ReadonlyArray<PortForward>>()
  /** What was counted before the ruleset that is loaded now; every load begins at nothing. */
  const before = new Map<number, Totals>()
  const self = randomBytes(6).toString("hex")
  let loads = 0
  let stamp = ""
  /** Counts the changes of `slots`. */
  let changes = 0
  /** How many of them are loaded; none before the first load. */
  let loaded: number | undefined
  let inForce = false
  /** The ruleset was touched since the last load that is known of. */
  let touched = false
  /** For some time nobody listened to changes. */
  let unheard = false
  const damage = yield* Queue.sliding<string>(1)

  const render = (name: string) =>
    renderRuleset({
      ...options,
      stamp: name,
      slots: [...slots]
        .sort(([left], [right]) => left - right)
        .map(([slot, forwards]) => ({ slot, forwards }))
    })

  /** The counters of the ruleset that is loaded; under the lock. */
  const counters: Effect.Effect<ReadonlyArray<CounterReading>, CommandFailed> = Effect.suspend(() =>
    loaded === undefined
      ? Effect.succeed([])
      : run("nft", ["-j", "list", "counters", "table", "inet", TABLE]).pipe(
          Effect.flatMap((text) => {
            const readings = readCounters(text)
            return readings === undefined
              ? Effect.fail(
                  new CommandFailed({ reason: "nft printed what is no list of counters", said: "" })
                )
              : Effect.succeed(readings)
          })
        )
  )

  const keepCounts = (readings: ReadonlyArray<CounterReading>) => {
    for (const reading of readings) {
      if (slots.has(reading.slot)) {
        before.set(reading.slot, plus(before.get(reading.slot) ?? nothing(), reading))
      }
    }
  }

  /** Under the lock. */
  const load = Effect.gen(function* () {
    if (inForce && loaded === changes) return
    // What was counted in a ruleset that is gone is gone with it.
    yield* Effect.ignore(Effect.map(counters, keepCounts))
    inForce = false
    const next = `${self}-${++loads}`
    const [text, included] = [render(next), changes]
    stamp = next
    yield* run("nft", ["-f", "-"], text)
    loaded = included
    inForce = true
    yield* allowForwarding
  }).pipe(Effect.tapError(() => Queue.offer(damage, "the table nibrunner of nftables is not loaded")))

  const ensure = Effect.suspend(() =>
    inForce && loaded === changes ? Effect.void : loading.withPermits(1)(load)
  )

  const repair = (why: string) =>
    Effect.gen(function* () {
      inForce = false
      yield* Effect.logWarning(`${why}: the rules that keep guests apart are loaded again`)
      yield* ensure.pipe(
        Effect.tapError((error) =>
          Effect.logError(
            `nothing boots or wakes until the rules that keep guests apart are loaded: ${error.message}`
          )
        ),
        Effect.retry(AGAIN)
      )
      yield* Effect.logInfo("the rules that keep guests apart are in force")
    })

  const mine = `inet ${TABLE} `
  const hear = (line: string) => {
    if (!`${line} `.includes(mine)) return
    // The last rule of a load is its stamp: all that was heard before belongs to it.
    touched = !(line.includes(`${mine}${STAMP_CHAIN} `) && line.includes(`"${stamp}"`))
  }

  /** What happened while nobody listened is not known. */
  const catchUp = Effect.suspend(() => {
    if (!unheard || loaded === undefined) return Effect.void
    unheard = false
    inForce = false
    return Queue.offer(damage, "nft monitor had ended")
  })

  /** Listens to the kernel's reports of changes; ends with `nft`. */
  const listen = Effect.gen(function* () {
    const monitor = yield* spawner.spawn(
      // Should the daemon be killed, the kernel ends it too.
      ChildProcess.make("setpriv", ["--pdeathsig", "TERM", "nft", "monitor", "rules"], {
        stdin: "ignore",
        stderr: "ignore",
        env: environment(),
        forceKillAfter: "2 seconds"
      })
    )
    yield* Effect.forkScoped(Effect.delay(catchUp, LISTENING))
    yield* monitor.stdout.pipe(
      Stream.decodeText(),
      Stream.splitLines,
      Stream.tap((line) => Effect.sync(() => hear(line))),
      Stream.debounce(QUIET),
      Stream.runForEach(() =>
        Effect.suspend(() => {
          if (!touched || loaded === undefined) return Effect.void
          touched = false
          inForce = false
          return Queue.offer(damage, "another program has changed the table nibrunner of nftables")
        })
      )
    )
  }).pipe(Effect.scoped)

  /** For what was missed, and for a host that was told to forward no more. */
  const look = Effect.gen(function* () {
    if (!inForce) return
    const seen = yield* run("nft", ["list", "chain", "inet", TABLE, STAMP_CHAIN])
    if (!seen.includes(`"${stamp}"`)) return yield* new CommandFailed({ reason: "it is another", said: "" })
    yield* allowForwarding
  }).pipe(
    loading.withPermits(1),
    Effect.catch(() => {
      inForce = false
      return Queue.offer(damage, "the table nibrunner of nftables is not as it was loaded")
    })
  )

  yield* Effect.forkScoped(
    listen.pipe(
      Effect.ignore({ log: "Warn", message: "the changes of nftables are not heard" }),
      Effect.andThen(
        Effect.sync(() => {
          unheard = true
        })
      ),
      Effect.repeat(LISTEN_AGAIN)
    )
  )
  yield* Effect.forkScoped(Effect.repeat(look, Schedule.spaced(LOOK)))
  yield* Effect.forkScoped(Effect.forever(Effect.flatMap(Queue.take(damage), repair)))

  return {
    /** The slots that the ruleset lets through, with their forwards, once `ensure` has succeeded. */
    slots: slots as ReadonlyMap<number, ReadonlyArray<PortForward>>,
    set: (slot: number, forwards: ReadonlyArray<PortForward>) => {
      if (same(slots.get(slot), forwards)) return
      slots.set(slot, forwards)
      changes++
    },
    /** Succeeds once the ruleset that goes with `slots` is in force. */
    ensure,
    forget: (slot: number) => {
      if (slots.delete(slot)) changes++
      before.delete(slot)
    },
    /** What was counted of each slot since it was attached. */
    totals: Effect.gen(function* () {
      const totals = new Map([...slots.keys()].map((slot) => [slot, before.get(slot) ?? nothing()]))
      for (const reading of yield* counters) {
        const known = totals.get(reading.slot)
        if (known !== undefined) totals.set(reading.slot, plus(known, reading))
      }
      return totals
    }).pipe(loading.withPermits(1))
  }
})
