import { createServer, type Socket } from "node:net"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { readConsole } from "../../../layers/hypervisor/qemu/console.ts"
import { isGoodMhz, measuredMhz, untilTimerIsGood } from "../../../layers/hypervisor/qemu/guest-timer.ts"
import { recordedLog } from "../../support/log.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const measured = (mhz: string) =>
  `[    0.169190] ..... CPU clock speed is 2596.0507 MHz.\r\n[    0.169190] ..... host bus clock speed is ${mhz} MHz.\r\n`

/** A QEMU whose guest's kernel measures this, boot after boot: what it was told, and a console that says so. */
const machine = Effect.fnUntraced(function* (...boots: ReadonlyArray<string>) {
  const path = join(yield* temporaryDirectory, "console.sock")
  const connected = yield* Deferred.make<Socket>()
  yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer((socket) => Deferred.doneUnsafe(connected, Effect.succeed(socket)))
      server.listen(path, () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.sync(() => server.close())
  )
  const console = yield* readConsole(path)
  const socket = yield* Deferred.await(connected)
  yield* Effect.addFinalizer(() => Effect.sync(() => socket.destroy()))
  const left = [...boots]
  const boot = Effect.sync(() => {
    const text = measured(left.shift() ?? assert.fail("it was booted more often than that"))
    // as a serial port brings it: in pieces
    socket.write(text.slice(0, 70))
    setImmediate(() => socket.write(text.slice(70)))
  })
  yield* boot
  const told: Array<string> = []
  const execute = (command: string, args?: Record<string, unknown>) =>
    Effect.suspend(() => {
      told.push(args === undefined ? command : `${command} ${JSON.stringify(args)}`)
      return command === "system_reset" ? boot : Effect.void
    })
  const qmp = { execute, closed: yield* Deferred.make<void>(), shutdownReason: () => undefined }
  return { told, left, watch: untilTimerIsGood("web", qmp, console) }
})

const ending = 'set-action {"reboot":"shutdown"}'
const restart = ['set-action {"reboot":"reset"}', "system_reset", ending]

describe("the timer of an emulated guest", () => {
  it("is good when it is at most a little late, and not much too early", () => {
    assert.deepStrictEqual([800, 990, 1_000, 1_050].map(isGoodMhz), [true, true, true, true])
    assert.deepStrictEqual([0.1, 550, 799, 1_051, 1_540].map(isGoodMhz), [false, false, false, false, false])
  })

  it("is told by its kernel once a boot", () => {
    assert.deepStrictEqual(
      measuredMhz(`${measured("999.9932")}x\r\n${measured("0.0412")}`),
      [999.9932, 0.0412]
    )
    assert.deepStrictEqual(measuredMhz("[    0.7] PCI: System does not support PCI"), [])
  })

  it.live("is left alone when it was measured well", () =>
    Effect.gen(function* () {
      const { told, watch } = yield* machine("1000.0531")
      yield* watch
      assert.deepStrictEqual(told, [ending])
    })
  )

  it.live("is measured anew in the same machine until it is good, whose other reboots are its end", () =>
    Effect.gen(function* () {
      const { told, left, watch } = yield* machine("1462.3122", "0.1030", "719.9910", "991.3521")
      yield* watch
      assert.deepStrictEqual(told, [ending, ...restart, ...restart, ...restart])
      assert.deepStrictEqual(left, [])
    })
  )

  it.effect("is not watched for in a guest that has booted long ago", () =>
    Effect.gen(function* () {
      const told: Array<string> = []
      const qmp = {
        execute: (command: string) => Effect.sync(() => told.push(command)),
        closed: yield* Deferred.make<void>(),
        shutdownReason: () => undefined
      }
      const watching = yield* Effect.forkChild(untilTimerIsGood("web", qmp, { until: () => Effect.never }))
      yield* TestClock.adjust("2 minutes")
      yield* Fiber.join(watching)
      assert.deepStrictEqual(told, ["set-action"])
    })
  )

  it.live("is taken as it is, with a warning, on a host that is always too busy", () => {
    const log = recordedLog()
    return Effect.gen(function* () {
      const { told, watch } = yield* machine(...Array.from({ length: 20 }, () => "1462.3122"))
      yield* watch
      assert.strictEqual(told.filter((command) => command === "system_reset").length, 19)
      assert.strictEqual(log.lines.filter((line) => line.startsWith("Warn the guest of web")).length, 1)
    }).pipe(Effect.provide(log.layer))
  })

  it.live("is waited for, and no longer than the machine is held", () =>
    Effect.gen(function* () {
      const { told, watch } = yield* machine("no number at all")
      const watching = yield* Effect.forkChild(watch, { startImmediately: true })
      yield* Effect.yieldNow
      yield* Fiber.interrupt(watching)
      assert.deepStrictEqual(told, [ending])
    })
  )
})
