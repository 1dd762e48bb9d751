/**
 * How long a machine is away from its callers when it is put to sleep, against bare QEMU that saves the same machine.
 *
 * Ours: `sleep` of the hypervisor, from the pause to the end of the VMM, with the snapshot committed. The other: QEMU pauses,
 * writes everything to a file on the same disk as one stream, the file is flushed, and QEMU is ended: no checksums, no
 * record, no rename. It is the same machine, woken from the snapshot that ours has just written, with a copy of its disk.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Logger } from "effect"
import { layerVerifiedGuestImage } from "../layers/guest-image/verified.ts"
import { layerQemu } from "../layers/hypervisor/qemu/layer.ts"
import { freePort, guestImage } from "../scripts/local/host.ts"
import { attempt, Problem } from "../scripts/local/problem.ts"
import { forgetSleeper, keepSleeper, wakeBare } from "./support/bare-sleeper.ts"
import type { Bench } from "./support/bench.ts"
import { firstAnswer } from "./support/first-answer.ts"
import { bootOne } from "./support/one-machine.ts"

const PAIRS = 15
const LIMIT_MS = 120_000

const fromPromise = <A>(what: string, run: () => Promise<A>) =>
  Effect.tryPromise({ try: run, catch: (error) => new Problem({ message: `${what}: ${error}` }) })

const timed = <E, R>(run: Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    const start = performance.now()
    yield* run
    return performance.now() - start
  })

const pairs = (folder: string, say: (text: string) => Effect.Effect<void>) =>
  Effect.gen(function* () {
    const one = yield* bootOne(folder)
    let machine = one.machine
    yield* Effect.addFinalizer(() => Effect.ignore(one.kill(machine)))
    yield* firstAnswer(one.target, LIMIT_MS)
    const ratios: Array<number> = []
    // the first warms the machine's caches and is not counted
    for (let pair = 0; pair <= PAIRS; pair++) {
      yield* one.freeze(machine)
      const mine = yield* timed(one.sleep(machine))

      const sleeper = yield* attempt("the snapshot cannot be kept", () =>
        keepSleeper(folder, one.booted, one.snapshot, one.guestPort)
      )
      const hostPort = yield* freePort(0)
      const other = yield* Effect.acquireUseRelease(
        Effect.sync(() => wakeBare(sleeper, hostPort)),
        (bare) =>
          Effect.gen(function* () {
            yield* fromPromise("bare QEMU cannot restore", () => bare.restored)
            yield* firstAnswer(
              { ...one.target, who: "bare QEMU", host: "127.0.0.1", port: hostPort },
              LIMIT_MS
            )
            return yield* timed(
              fromPromise("bare QEMU cannot save", () =>
                bare.save(join(sleeper.folder, "stream")).then(() => bare.end())
              )
            )
          }),
        (bare) => Effect.promise(() => bare.end())
      )
      forgetSleeper(sleeper)

      machine = yield* one.wake
      yield* firstAnswer(one.target, LIMIT_MS)
      if (pair === 0) continue
      ratios.push(mine / other)
      yield* say(
        `pair ${pair}: ours ${mine.toFixed(0)} ms, bare QEMU ${other.toFixed(0)} ms, ratio ${(mine / other).toFixed(3)}`
      )
    }
    return { time: { what: "ours ÷ bare QEMU's save and fsync", values: ratios, atMost: 1.2 } }
  })

export const bench: Bench = {
  about: `putting a machine to sleep, against bare QEMU that saves it to the same disk; ${PAIRS} pairs`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the machine", () => mkdtempSync(join(tmpdir(), "nibrunner-sleep-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true }))
      )
      const qemu = layerQemu({ binary: "qemu-system-x86_64", runtimeDir: join(folder, "run") }).pipe(
        Layer.provide(layerVerifiedGuestImage(guestImage)),
        Layer.provide(NodeServices.layer),
        Layer.provide(Logger.layer([]))
      )
      return yield* Effect.scoped(pairs(folder, say)).pipe(
        Effect.provide(qemu),
        Effect.catchIf(
          (error) => !(error instanceof Problem),
          (error) => new Problem({ message: error.message })
        )
      )
    })
}
