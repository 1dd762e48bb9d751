import { type ChildProcess, spawn } from "node:child_process"
import { copyFileSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import {
  awaitEnd,
  hostBootId,
  identify,
  isAlive,
  killAndWait,
  type ProcessIdentity,
  residentBytes
} from "../../../layers/hypervisor/qemu/process.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

/** A process that does nothing under a program's name of ours. */
const sleeper = (name: string) =>
  Effect.gen(function* () {
    const program = join(yield* temporaryDirectory, name)
    copyFileSync("/bin/sleep", program)
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => spawn(program, ["100000"], { stdio: "ignore" })),
      (running) => Effect.sync(() => running.kill("SIGKILL"))
    )
    return [child, identify(child.pid ?? 0) as ProcessIdentity] as const
  })

/** Blocks this process, so that nobody reaps the child, until the kernel shows it as a zombie. */
const becomeZombie = (child: ChildProcess) => {
  process.kill(child.pid ?? 0, "SIGKILL")
  while (!/\) Z /u.test(readFileSync(`/proc/${child.pid}/stat`, "latin1")));
}

describe("a process", () => {
  it.live("is known by its start, whatever its name holds", () =>
    Effect.gen(function* () {
      const [child, identity] = yield* sleeper("a) R 1 (b")
      assert.strictEqual(identity.pid, child.pid)
      assert.strictEqual(identity.hostBootId, hostBootId())
      const uptimeTicks = Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]) * 100
      assert.isAtMost(Math.abs(uptimeTicks - identity.startTime), 60_000)
      assert.isTrue(isAlive(identity))
      assert.isAbove(Option.getOrThrow(residentBytes(identity)), 0)
    })
  )

  it.live("is not another that has its pid", () =>
    Effect.gen(function* () {
      const [, identity] = yield* sleeper("sleeper")
      const others = [
        { ...identity, startTime: identity.startTime + 1 },
        { ...identity, hostBootId: "00000000-0000-4000-8000-000000000000" }
      ]
      for (const other of others) {
        assert.isFalse(isAlive(other))
        assert.isTrue(Option.isNone(residentBytes(other)))
        yield* killAndWait(other, 1_000)
        assert.isTrue(isAlive(identity))
      }
    })
  )

  it.live("has ended when it is dead, also before anybody has reaped it", () =>
    Effect.gen(function* () {
      const [child, identity] = yield* sleeper("sleeper")
      becomeZombie(child)
      assert.isFalse(isAlive(identity))
      assert.isUndefined(identify(identity.pid))
      assert.isTrue(Option.isNone(residentBytes(identity)))
    })
  )

  it.live("that is killed is gone when that succeeds, and killing it again does no harm", () =>
    Effect.gen(function* () {
      const [, identity] = yield* sleeper("sleeper")
      const waiting = yield* Effect.forkChild(awaitEnd(identity, 1, 10), { startImmediately: true })
      yield* killAndWait(identity, 20_000)
      assert.isFalse(isAlive(identity))
      yield* Fiber.join(waiting)
      yield* killAndWait(identity, 20_000)
    })
  )
})
