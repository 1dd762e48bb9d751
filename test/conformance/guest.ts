/** What every conversation with a guest must do. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Queue, type Scope } from "effect"
import {
  type BootSpec,
  Guest,
  type GuestError,
  type GuestEvent,
  type GuestSession,
  type PortProbe
} from "../../src/services/Guest.ts"
import type { Machine } from "../../src/services/Hypervisor.ts"

/** What the app in a guest does. */
export type Program =
  /** Writes `out` on stdout, then `err` on stderr, and stays. */
  | "prints"
  /** Accepts connections on port 3000, a while after it was started. */
  | "listens"
  /** Exits with 3, each time. */
  | "exits"
  /** Sends every datagram back that comes to UDP port 3001, once it has said that it listens. */
  | "echoes"
  /** Is in no layer. */
  | "missing"

export interface GuestHarness {
  readonly layer: Layer.Layer<Guest>
  /** A microVM that was just booted, and what it is to be told to run. Ended with the scope. */
  readonly boot: (program: Program) => Effect.Effect<readonly [Machine, BootSpec], unknown, Scope.Scope>
  /** A microVM whose PID 1 never says a word. */
  readonly bootSilent: Effect.Effect<Machine, unknown, Scope.Scope>
  readonly strike: (machine: Machine) => Effect.Effect<void>
  /** The most that a guest may take to say hello, ms. */
  readonly patienceMs: number
}

/** One restart is allowed, at once. */
export const ONE_RESTART = {
  maxRestarts: 1,
  initialBackoffMs: 10,
  maxBackoffMs: 10,
  backoffFactor: 1,
  resetAfterMs: 600_000
}

/** The next event that is not output. */
const nextTurn = (session: GuestSession): Effect.Effect<GuestEvent, unknown> =>
  Effect.flatMap(Queue.take(session.events), (event) =>
    event.kind === "output" ? nextTurn(session) : Effect.succeed(event)
  )

/** Takes events until both streams have said so much; what each has said. */
const outputs = (session: GuestSession, wanted: { readonly stdout: string; readonly stderr: string }) =>
  Effect.gen(function* () {
    const said = { stdout: "", stderr: "" }
    while (said.stdout.length < wanted.stdout.length || said.stderr.length < wanted.stderr.length) {
      const event = yield* Queue.take(session.events)
      if (event.kind === "output") said[event.stream] += new TextDecoder().decode(event.bytes)
    }
    return said
  })

export const guestConformance = (name: string, make: Effect.Effect<GuestHarness, unknown, Scope.Scope>) =>
  describe(`${name} as a guest`, () => {
    type Connect = (machine: Machine) => Effect.Effect<GuestSession, unknown, Scope.Scope>

    const test = (
      sentence: string,
      body: (harness: GuestHarness, connect: Connect) => Effect.Effect<void, unknown, Scope.Scope>
    ) =>
      it.live(sentence, () =>
        Effect.flatMap(make, (harness) =>
          body(harness, (machine) =>
            Effect.gen(function* () {
              const context = yield* Layer.build(harness.layer)
              return yield* Guest.use((guest) => guest.connect(machine, harness.patienceMs)).pipe(
                Effect.provide(context)
              )
            })
          )
        )
      )

    test("says hello and waits for its boot spec, then runs what it says", ({ boot }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("prints")
        const session = yield* connect(machine)
        assert.strictEqual(session.phase, "awaiting-spec")
        yield* session.handOver(spec)
        assert.deepStrictEqual(yield* nextTurn(session), { kind: "started" })
        assert.deepStrictEqual(yield* outputs(session, { stdout: "out\n", stderr: "err\n" }), {
          stdout: "out\n",
          stderr: "err\n"
        })
      }))

    test("takes no second boot spec", ({ boot }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("prints")
        const session = yield* connect(machine)
        yield* session.handOver(spec)
        yield* nextTurn(session)
        const error = yield* Effect.flip(session.handOver(spec))
        assert.include(error.message, "could not be asked to take its boot spec")
      }))

    test("tells the next daemon in which phase it is, and what the last one had not taken", ({
      boot
    }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("prints")
        const first = yield* Effect.scoped(
          Effect.gen(function* () {
            const session = yield* connect(machine)
            yield* session.handOver(spec)
            // it runs when it accepts what only a running guest refuses
            while ((yield* session.probe(3000, 1_000)) !== "refused") yield* Effect.sleep(10)
            return session
          })
        )
        const next = yield* connect(machine)
        assert.notStrictEqual(next.sessionId, first.sessionId)
        assert.include(["starting", "running"], next.phase)
        assert.deepStrictEqual(yield* nextTurn(next), { kind: "started" })
        yield* outputs(next, { stdout: "out\n", stderr: "err\n" })
      }))

    test("tries ports from inside: refused before the program listens, accepted once it does", ({
      boot
    }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("listens")
        const session = yield* connect(machine)
        assert.notStrictEqual(yield* session.probe(3000, 5_000), "accepted")
        yield* session.handOver(spec)
        const seen = new Set<PortProbe>()
        while (!seen.has("accepted")) {
          seen.add(yield* session.probe(3000, 5_000))
          yield* Effect.sleep(5)
        }
        assert.isTrue(seen.has("refused"))
        const many = yield* Effect.forEach(Array.from({ length: 20 }), () => session.probe(3000, 5_000), {
          concurrency: "unbounded"
        })
        assert.deepStrictEqual(new Set(many), new Set(["accepted" as const]))
      }))

    test("tells what it uses: its volume once that is mounted, its memory, and CPU time that goes on", ({
      boot
    }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("prints")
        const session = yield* connect(machine)
        const before = yield* session.usage(60_000)
        assert.strictEqual(before.volumeTotalBytes, 0)
        yield* session.handOver(spec)
        yield* nextTurn(session)
        let after = yield* session.usage(60_000)
        while (after.cpuTotalTicks <= before.cpuTotalTicks) {
          yield* Effect.sleep(50)
          after = yield* session.usage(60_000)
        }
        assert.isAbove(after.volumeTotalBytes, after.volumeUsedBytes)
        assert.isAbove(after.memoryTotalBytes, after.memoryUsedBytes)
        assert.isAbove(after.memoryUsedBytes, 0)
        assert.isAtLeast(after.cpuBusyTicks, before.cpuBusyTicks)
      }))

    test("starts a program again that ends, as often as its policy says, and then gives up", ({
      boot
    }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("exits")
        const session = yield* connect(machine)
        yield* session.handOver(spec)
        assert.deepStrictEqual(yield* nextTurn(session), { kind: "started" })
        const restarting = yield* nextTurn(session)
        assert.deepInclude(restarting, {
          kind: "restarting",
          attempt: 1,
          budget: 1,
          exit: { code: 3 },
          backoffMs: 10
        })
        assert.deepStrictEqual(yield* nextTurn(session), { kind: "started" })
        assert.strictEqual((yield* nextTurn(session)).kind, "failed")
        yield* Deferred.await(machine.exit)
        assert.isTrue(yield* isAtEnd(session))
      }))

    test("tells that its program is missing, by its path", ({ boot }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("missing")
        const session = yield* connect(machine)
        yield* session.handOver(spec)
        let event = yield* nextTurn(session)
        while (event.kind !== "failed") event = yield* nextTurn(session)
        assert.include(event.reason, spec.program)
        yield* Deferred.await(machine.exit)
      }))

    /** A session whose program runs and listens. */
    const echoing = ([machine, spec]: readonly [Machine, BootSpec], connect: Connect) =>
      Effect.gen(function* () {
        const session = yield* connect(machine)
        yield* session.handOver(spec)
        yield* outputs(session, { stdout: "listens\n", stderr: "" })
        return session
      })

    test("carries datagrams to its program, and back to whom they came from", ({ boot }, connect) =>
      Effect.gen(function* () {
        const session = yield* echoing(yield* boot("echoes"), connect)
        const clients = Array.from({ length: 20 }, () => {
          const replies = Effect.runSync(Queue.unbounded<string>())
          const { send, close } = session.datagrams.open(3001, (bytes) => {
            Queue.offerUnsafe(replies, new TextDecoder().decode(bytes))
          })
          return { send: (text: string) => send(new TextEncoder().encode(text)), close, replies }
        })
        for (const [index, { send }] of clients.entries()) send(`${index}`)
        for (const [index, { replies }] of clients.entries()) {
          assert.strictEqual(yield* Queue.take(replies), `${index}`)
        }
        const [first, second] = clients
        assert(first !== undefined && second !== undefined)
        first.close()
        first.send("unheard")
        second.send("heard")
        assert.strictEqual(yield* Queue.take(second.replies), "heard")
        assert.strictEqual(Queue.sizeUnsafe(first.replies), 0)
      }))

    test("carries the datagrams of the next daemon, whose clients are others", ({ boot }, connect) =>
      Effect.gen(function* () {
        const echo = (session: GuestSession, text: string) =>
          Effect.gen(function* () {
            const replies = yield* Queue.unbounded<string>()
            session.datagrams
              .open(3001, (bytes) => {
                Queue.offerUnsafe(replies, new TextDecoder().decode(bytes))
              })
              .send(new TextEncoder().encode(text))
            return yield* Queue.take(replies)
          })
        const booted = yield* boot("echoes")
        yield* Effect.scoped(
          Effect.gen(function* () {
            const session = yield* echoing(booted, connect)
            assert.strictEqual(yield* echo(session, "one"), "one")
          })
        )
        assert.strictEqual(yield* echo(yield* connect(booted[0]), "two"), "two")
      }))

    test("freezes its volume and thaws it, and says whether it was frozen all the time", ({
      boot
    }, connect) =>
      Effect.gen(function* () {
        const session = yield* echoing(yield* boot("echoes"), connect)
        assert.strictEqual(yield* session.thawVolume, "lapsed")
        for (let round = 0; round < 2; round++) {
          yield* session.freezeVolume(60_000)
          assert.strictEqual(yield* session.thawVolume, "held")
          assert.strictEqual(yield* session.thawVolume, "lapsed")
        }
        yield* session.freezeVolume(300)
        yield* Effect.sleep(1_500)
        assert.strictEqual(yield* session.thawVolume, "lapsed")
      }))

    test("freezes for its sleep or its volume, never both, and thaws what the last daemon has frozen", ({
      boot
    }, connect) =>
      Effect.gen(function* () {
        const booted = yield* boot("echoes")
        yield* Effect.scoped(
          Effect.gen(function* () {
            const session = yield* echoing(booted, connect)
            yield* session.freeze(60_000)
            assert.include((yield* Effect.flip(session.freezeVolume(60_000))).message, "freeze its volume")
            yield* session.thaw
            yield* session.freezeVolume(60_000)
            assert.include((yield* Effect.flip(session.freezeVolume(60_000))).message, "freeze its volume")
            assert.include((yield* Effect.flip(session.freeze(60_000))).message, "freeze its program")
          })
        )
        const next = yield* connect(booted[0])
        assert.strictEqual(next.phase, "running")
        assert.strictEqual(yield* next.thawVolume, "held")
        yield* next.freeze(60_000)
        yield* next.thaw
      }))

    test("freezes no volume before it has a boot spec", ({ boot }, connect) =>
      Effect.gen(function* () {
        const [machine] = yield* boot("echoes")
        const session = yield* connect(machine)
        assert.include((yield* Effect.flip(session.freezeVolume(60_000))).message, "freeze its volume")
        assert.strictEqual(yield* session.thawVolume, "lapsed")
      }))

    test("shuts down when it is asked to, and the conversation ends with it", ({ boot }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("prints")
        const session = yield* connect(machine)
        yield* session.handOver(spec)
        yield* nextTurn(session)
        yield* session.shutdown(10_000)
        assert.deepStrictEqual(yield* Deferred.await(machine.exit), { kind: "exited", code: 0 })
        assert.isTrue(yield* isAtEnd(session))
      }))

    test("shuts down before it has a boot spec", ({ boot }, connect) =>
      Effect.gen(function* () {
        const [machine] = yield* boot("prints")
        const session = yield* connect(machine)
        yield* session.shutdown(1_000)
        assert.deepStrictEqual(yield* Deferred.await(machine.exit), { kind: "exited", code: 0 })
      }))

    test("answers nothing any more when its VMM has ended, and every request says so", ({
      boot,
      strike
    }, connect) =>
      Effect.gen(function* () {
        const [machine, spec] = yield* boot("prints")
        const session = yield* connect(machine)
        yield* strike(machine)
        assert.isTrue(yield* isAtEnd(session))
        const requests: ReadonlyArray<Effect.Effect<unknown, GuestError>> = [
          session.handOver(spec),
          session.probe(3000, 1_000),
          session.usage(1_000),
          session.shutdown(1_000),
          session.freezeVolume(1_000),
          session.thawVolume
        ]
        for (const request of requests) {
          assert.include((yield* Effect.flip(request)).message, "its VMM has ended")
        }
      }))

    test("is given up on when PID 1 says nothing in time", ({ bootSilent, layer }) =>
      Effect.gen(function* () {
        const machine = yield* bootSilent
        const error = yield* Effect.flip(
          Guest.use((guest) => guest.connect(machine, 300)).pipe(Effect.provide(layer))
        )
        assert.include(error.message, "said nothing in 300 ms")
      }))

    test("is not waited for when its VMM has ended", ({ bootSilent, strike, layer }) =>
      Effect.gen(function* () {
        const machine = yield* bootSilent
        yield* strike(machine)
        const error = yield* Effect.flip(
          Guest.use((guest) => guest.connect(machine, 600_000)).pipe(Effect.provide(layer))
        )
        assert.include(error.message, "its VMM has ended")
      }))
  })

/** Takes what is left; true when the events end, and not the test. */
const isAtEnd = (session: GuestSession): Effect.Effect<boolean> =>
  Queue.take(session.events).pipe(
    Effect.matchEffect({ onSuccess: () => isAtEnd(session), onFailure: () => Effect.succeed(true) })
  )
