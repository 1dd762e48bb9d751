/** What a host does with a guest whose program runs: datagrams, frozen volumes, sleep, and the time after it. */
import { execFileSync } from "node:child_process"
import { mkdirSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Queue, type Scope } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import { type BootSpec, Guest, type GuestSession } from "../../src/services/Guest.ts"
import { Hypervisor, type Machine, type MachineSpec } from "../../src/services/Hypervisor.ts"
import { bootSpec } from "../support/boot-spec.ts"
import { tenantSquashfs } from "../tenant/build.ts"
import { machineSpec, PATIENCE_MS, processesOf, qemu, runtimeDirectory } from "./qemu.ts"

const SLOT = 10
const UDP_PORT = 5000
const LEASE_MS = 60_000
const { guest: address, host: gateway } = slotAddresses(SLOT)

const connect = (machine: Machine) => Guest.use((guest) => guest.connect(machine, PATIENCE_MS))

interface Drives {
  readonly layers?: ReadonlyArray<string>
  /** Without it one in the test's directory. */
  readonly volume?: MachineSpec["volume"]
}

/** A microVM that was told to run this. */
const boot = (directory: string, changes: Partial<BootSpec>, { layers = [], volume }: Drives = {}) =>
  Effect.gen(function* () {
    const plain = yield* machineSpec(directory, "web", SLOT)
    const spec = { ...plain, layers, volume: volume ?? plain.volume }
    execFileSync("mke2fs", ["-q", "-F", "-t", "ext4", spec.volume.kind === "file" ? spec.volume.path : ""])
    const machine = yield* Hypervisor.use((service) => service.boot(spec))
    yield* Effect.scoped(
      Effect.flatMap(connect(machine), (session) =>
        session.handOver(
          bootSpec({
            network: { address, prefixLength: 30, gateway },
            layerCount: layers.length,
            hostTime: Date.now(),
            ...changes
          })
        )
      )
    )
    return { machine, spec }
  })

const perl = (directory: string, script: string, drives: Drives = {}) =>
  boot(directory, { program: "/usr/bin/perl", args: ["-e", `$| = 1; ${script}`] }, drives)

const tenant = (directory: string) =>
  Effect.gen(function* () {
    const layer = yield* tenantSquashfs(directory)
    return yield* boot(
      directory,
      { program: "/app/server", args: ["--raw-udp", `${UDP_PORT}`, "--listen-after", "100"] },
      { layers: [layer] }
    )
  })

/** What the program prints next, line by line. */
const linesOf = (session: GuestSession) => {
  let unfinished = ""
  const lines: Array<string> = []
  const next: Effect.Effect<string, unknown> = Effect.gen(function* () {
    while (lines.length === 0) {
      const event = yield* Queue.take(session.events)
      assert.notStrictEqual(event.kind, "gap")
      if (event.kind !== "output") continue
      const parts = (unfinished + new TextDecoder().decode(event.bytes)).split("\n")
      unfinished = parts.pop() ?? ""
      lines.push(...parts)
    }
    return lines.shift() ?? ""
  })
  const until = (text: string): Effect.Effect<void, unknown> =>
    Effect.flatMap(next, (line) => (line === text ? Effect.void : until(text)))
  return { next, until }
}

let nextWake = 1
const sleepAndWake = (directory: string, machine: Machine, spec: MachineSpec, forMs: number) =>
  Effect.gen(function* () {
    const place = { directory: join(directory, "snapshots", "web"), deploymentId: "dep-1" }
    const machineId = (process.pid * 65536 + 16384 + nextWake++).toString(16).padStart(16, "0")
    yield* Effect.scoped(Effect.flatMap(connect(machine), (session) => session.freeze(LEASE_MS)))
    yield* Hypervisor.use((service) => service.sleep(machine, place))
    yield* Effect.sleep(forMs)
    return yield* Hypervisor.use((service) => service.wake({ ...spec, machineId }, place))
  })

const bytesOf = (text: string) => new TextEncoder().encode(text)

/** One client of the program's UDP port. */
const client = (session: GuestSession) => {
  const replies = Effect.runSync(Queue.unbounded<Uint8Array>())
  const { send, close } = session.datagrams.open(UDP_PORT, (bytes) => {
    Queue.offerUnsafe(replies, bytes)
  })
  /** Until it is answered: the program may not listen yet. */
  const echo = (bytes: Uint8Array): Effect.Effect<Uint8Array> =>
    Effect.sync(() => send(bytes)).pipe(
      Effect.andThen(Queue.take(replies)),
      Effect.timeoutOption(2_000),
      Effect.flatMap((reply) => (reply._tag === "Some" ? Effect.succeed(reply.value) : echo(bytes)))
    )
  return { send, close, replies, echo }
}

const test = (
  sentence: string,
  body: (directory: string) => Effect.Effect<void, unknown, Hypervisor | Guest | Scope.Scope>
) =>
  it.live(sentence, () =>
    Effect.gen(function* () {
      const directory = yield* runtimeDirectory
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          for (const { pid } of processesOf(directory)) process.kill(pid, "SIGKILL")
        })
      )
      yield* body(directory).pipe(Effect.provide(Layer.merge(qemu(directory), layerVirtioSerialGuest)))
    })
  )

describe("a guest in service", () => {
  test("carries the datagrams of many clients, large ones too, for one daemon after the other and after a sleep", (directory) =>
    Effect.gen(function* () {
      const { machine, spec } = yield* tenant(directory)
      const serve = (on: Machine) =>
        Effect.scoped(
          Effect.gen(function* () {
            const session = yield* connect(on)
            yield* session.thaw
            const first = client(session)
            assert.deepStrictEqual(yield* first.echo(bytesOf("ready")), bytesOf("ready"))
            const clients = Array.from({ length: 300 }, () => client(session))
            for (const [index, each] of clients.entries()) {
              const bytes = bytesOf(`client ${index}`)
              assert.deepStrictEqual(yield* each.echo(bytes), bytes)
            }
            const large = Uint8Array.from({ length: 65_507 }, (_, index) => (index < 40_000 ? 0xff : index))
            assert.deepStrictEqual(yield* first.echo(large), large)
            return first
          })
        )
      const stale = yield* serve(machine)
      yield* serve(machine)
      const woken = yield* sleepAndWake(directory, machine, spec, 0)
      // of a session that has ended: nothing becomes of it
      stale.send(bytesOf("nobody"))
      yield* serve(woken)
      assert.strictEqual(Queue.sizeUnsafe(stale.replies), 0)
    }))

  test("tells all of its log, and answers what it is asked, while clients flood it and it floods them", (directory) =>
    Effect.gen(function* () {
      const { machine } = yield* perl(
        directory,
        `use Socket; socket(S, PF_INET, SOCK_DGRAM, 0); bind(S, pack_sockaddr_in(${UDP_PORT}, INADDR_ANY)) or die;
         if (fork() == 0) { while (defined($from = recv(S, $b, 65535, 0))) { send(S, $b, 0, $from) for 1 .. 3 } }
         print "begin\\n"; for $i (1 .. 2000) { print "line $i\\n"; select(undef, undef, undef, 0.001) } print "end\\n"; sleep`
      )
      const session = yield* connect(machine)
      const lines = linesOf(session)
      yield* lines.until("begin")
      const clients = Array.from({ length: 10 }, () => client(session))
      const load = new Uint8Array(8_000)
      yield* Effect.forkScoped(
        Effect.gen(function* () {
          for (const each of clients) for (let count = 0; count < 10; count++) each.send(load)
          yield* Effect.sleep(1)
        }).pipe(Effect.forever)
      )
      for (let line = 1; line <= 2000; line++) assert.strictEqual(yield* lines.next, `line ${line}`)
      assert.strictEqual(yield* session.probe(1, 10_000), "refused")
      assert.isAbove(Queue.sizeUnsafe(clients[0]?.replies ?? assert.fail()), 0)
    }))

  test("freezes its volume, as seen from inside, for less than a second", (directory) =>
    Effect.gen(function* () {
      // clock_gettime(CLOCK_MONOTONIC); the longest that one small write has taken since it was asked last
      const { machine } = yield* perl(
        directory,
        `use Socket; socket(S, PF_INET, SOCK_DGRAM, 0); bind(S, pack_sockaddr_in(${UDP_PORT}, INADDR_ANY)) or die;
         sub now { my $t = "\\0" x 16; syscall(228, 1, $t); my ($s, $n) = unpack("qq", $t); $s * 1000 + $n / 1e6 }
         print "ready\\n"; for (;;) { $began = now(); open(F, ">", "/srv/beat") or die; syswrite(F, "x"); close F;
           $took = now() - $began; $longest = $took if $took > $longest; $rin = ""; vec($rin, fileno(S), 1) = 1;
           if (select($rin, undef, undef, 0.005) > 0) { recv(S, $b, 100, 0); printf("%d\\n", $longest); $longest = 0 } }`
      )
      const session = yield* connect(machine)
      const lines = linesOf(session)
      yield* lines.until("ready")
      const asker = client(session)
      const longest = Effect.sync(() => asker.send(bytesOf("?"))).pipe(
        Effect.andThen(lines.next),
        Effect.map(Number)
      )
      const stalls: Array<number> = []
      for (let round = 0; round < 5; round++) {
        yield* longest
        yield* session.freezeVolume(LEASE_MS)
        assert.strictEqual(yield* session.thawVolume, "held")
        stalls.push(yield* longest)
      }
      // one that is held is seen
      yield* session.freezeVolume(LEASE_MS)
      yield* Effect.sleep(1_500)
      assert.strictEqual(yield* session.thawVolume, "held")
      assert.isAtLeast(yield* longest, 1_000)
      const median = stalls.toSorted((a, b) => a - b)[2] ?? assert.fail()
      assert.isBelow(median, 1_000)
    }))

  test("lets its program run on in the right time after a sleep, which its monotonic clock does not count", (directory) =>
    Effect.gen(function* () {
      const { machine, spec } = yield* perl(
        directory,
        `sub at { my $t = "\\0" x 16; syscall(228, $_[0], $t); my ($s, $n) = unpack("qq", $t); int($s * 1000 + $n / 1e6) }
         for (;;) { printf("%d %d\\n", at(0), at(1)); select(undef, undef, undef, 0.01) }`
      )
      const asleepMs = 4_000
      const read = (line: string) => {
        const [wall, monotonic] = line.split(" ").map(Number)
        return { wall: wall ?? Number.NaN, monotonic: monotonic ?? Number.NaN }
      }
      let woken = machine
      let before = yield* Effect.scoped(
        Effect.flatMap(connect(machine), (session) => Effect.map(linesOf(session).next, read))
      )
      for (let round = 0; round < 2; round++) {
        woken = yield* sleepAndWake(directory, woken, spec, asleepMs)
        const thawed = Date.now()
        yield* Effect.scoped(
          Effect.gen(function* () {
            const session = yield* connect(woken)
            yield* session.thaw
            const done = Date.now()
            const lines = linesOf(session)
            for (;;) {
              const after = read(yield* lines.next)
              // what the last conversation had not taken is told again
              if (after.monotonic <= before.monotonic) continue
              const asleep = after.wall - before.wall >= asleepMs
              if (asleep) {
                // the first that the program has seen of the time after its sleep
                assert.isAtLeast(after.wall, thawed - 1_000)
                assert.isAtMost(after.wall, done + 1_000)
                assert.isBelow(after.monotonic - before.monotonic, asleepMs)
              }
              assert.isAtLeast(after.wall, before.wall)
              before = after
              if (asleep) break
            }
          })
        )
      }
    }))
})

describe.skipIf(process.getuid?.() !== 0)("a guest whose volume lies on a small disk (as root)", () => {
  test("waits while the disk is full, which is known of it, sees no error, and goes on when there is room", (directory) =>
    Effect.gen(function* () {
      const small = join(directory, "small")
      mkdirSync(small)
      const mount = (...args: ReadonlyArray<string>) =>
        execFileSync("mount", [...args, small], { stdio: ["ignore", "pipe", "pipe"] })
      yield* Effect.acquireRelease(
        Effect.sync(() => mount("-t", "tmpfs", "-o", "size=8m", "small")),
        () => Effect.sync(() => execFileSync("umount", ["-l", small]))
      )
      const path = join(small, "web.ext4")
      writeFileSync(path, "")
      truncateSync(path, 32 * 2 ** 20)
      const { machine } = yield* perl(
        directory,
        `use IO::Handle; print "ready\\n"; open(F, ">", "/srv/large") or die; syswrite(F, "x" x 12000000) or print "not written: $!\\n";
         F->sync or print "not synced: $!\\n"; print "written\\n"; sleep`,
        { volume: { kind: "file", path } }
      )
      const session = yield* connect(machine)
      const lines = linesOf(session)
      yield* lines.until("ready")
      const until = (waits: boolean) =>
        Effect.repeat(Effect.delay(machine.waitsForVolume, 100), { until: (now) => now === waits })
      yield* until(true)
      mount("-o", "remount,size=64m")
      assert.strictEqual(yield* lines.next, "written")
      yield* until(false)
    }))
})
