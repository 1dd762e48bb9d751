/** Sleep and wake by QEMU, held to what every hypervisor must do. */
import { execFileSync } from "node:child_process"
import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readSync,
  statSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { Effect, Layer, Queue } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import type { GuestSession } from "../../src/services/Guest.ts"
import { snapshotConformance } from "../conformance/snapshot.ts"
import { bootSpec } from "../support/boot-spec.ts"
import { volumeFile } from "../support/volume-file.ts"
import { machineSpec, PATIENCE_MS, processesOf, qemu, runtimeDirectory, tracesOf } from "./qemu.ts"

const flipBit = (path: string, at: number, bit: number) => {
  const file = openSync(path, "r+")
  const byte = new Uint8Array(1)
  readSync(file, byte, 0, 1, at)
  byte[0] = (byte[0] ?? 0) ^ (1 << bit)
  writeSync(file, byte, 0, 1, at)
  closeSync(file)
}

/** Not the port that other tests forward: slots are the same for all of them. */
const PORT = 3871

/** The first page of the memory that holds something, and the first that does not. */
const pagesOf = (path: string) => {
  const page = new Uint8Array(4096)
  const file = openSync(path, "r")
  const found: { full?: number; empty?: number } = {}
  for (
    let at = 0;
    at < statSync(path).size && (found.full === undefined || found.empty === undefined);
    at += 4096
  ) {
    readSync(file, page, 0, 4096, at)
    if (page.some((byte) => byte !== 0)) found.full ??= at
    else found.empty ??= at
  }
  closeSync(file)
  return { full: found.full ?? 0, empty: found.empty ?? 0 }
}

/** The last time of the guest's that it prints within a while, against the host's then. */
const clockError = (session: GuestSession) =>
  Effect.gen(function* () {
    let error = Number.NaN
    yield* Effect.gen(function* () {
      for (;;) {
        const event = yield* Queue.take(session.events)
        if (event.kind !== "output") continue
        const line = new TextDecoder().decode(event.bytes).trim().split("\n").at(-1)
        error = Number(line) * 1000 - Date.now()
      }
    }).pipe(Effect.timeoutOption(2_000))
    return error
  })

snapshotConformance(
  "QEMU",
  Effect.gen(function* () {
    const directory = yield* runtimeDirectory
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const { pid } of processesOf(directory)) process.kill(pid, "SIGKILL")
      })
    )
    const snapshots = join(directory, "snapshots")
    const place = (appId: string) => ({ directory: join(snapshots, appId), deploymentId: "dep-1" })
    let nextWake = 1
    return {
      layer: Layer.mergeAll(qemu(directory), layerVirtioSerialGuest),
      spec: (appId, slot) =>
        machineSpec(directory, appId, slot).pipe(
          Effect.map((spec) => ({ ...spec, link: { ...spec.link, ports: [PORT] } })),
          Effect.tap((spec) =>
            Effect.sync(() => execFileSync("mke2fs", ["-q", "-F", "-t", "ext4", volumeFile(spec.volume)]))
          ),
          Effect.orDie
        ),
      again: (spec) => ({
        ...spec,
        machineId: (process.pid * 65536 + 32768 + nextWake++).toString(16).padStart(16, "0")
      }),
      program: (spec) => {
        const { guest: address, host: gateway } = slotAddresses(spec.slot)
        return bootSpec({
          network: { address, prefixLength: 30, gateway },
          program: "/bin/sh",
          args: ["-c", "while :; do date +%s.%N; sleep 0.2; done"],
          hostTime: Date.now()
        })
      },
      place,
      flips: ({ directory: at }) =>
        Effect.sync(() => {
          const { full, empty } = pagesOf(join(at, "memory"))
          const middle = (name: string) => Math.floor(statSync(join(at, name)).size / 2)
          return [
            ["the record", "record", middle("record"), 0],
            ["the record's checksum", "record", 0, 1],
            ["the state of devices", "state", middle("state"), 7],
            ["the list of checksums", "memory.sums", 3, 3],
            ["a page of the memory", "memory", full + 4095, 7],
            ["a page of zeros", "memory", empty, 0]
          ].map(
            ([what, name, offset, bit]) =>
              [
                String(what),
                Effect.sync(() => flipBit(join(at, String(name)), Number(offset), Number(bit)))
              ] as const
          )
        }),
      spoilSleep: (spec) => {
        const file = join(directory, "a-file")
        writeFileSync(file, "")
        return {
          place: { directory: join(file, spec.appId), deploymentId: "dep-1" },
          reason: /not a directory/u,
          repair: Effect.void
        }
      },
      spoilWake: (spec) => {
        const lock = Effect.callback<ReturnType<typeof createServer>>((resume) => {
          const server = createServer()
          server.listen(PORT, slotAddresses(spec.slot).loopback, () => resume(Effect.succeed(server)))
        })
        return Effect.map(
          Effect.acquireRelease(lock, (server) => Effect.sync(() => server.close())),
          (server) => Effect.sync(() => server.close())
        )
      },
      moments: () => [0, 5, 20, 50, 100, 150, 250, 400].map((ms) => Effect.sleep(ms)),
      clockError: (_, session) => clockError(session),
      runs: (machineId) =>
        Effect.sync(() => processesOf(directory).some(({ command }) => command.includes(machineId))),
      strike: (machine) => Effect.sync(() => process.kill(machine.record.process?.pid ?? 0, "SIGKILL")),
      traces: Effect.sync(() => [
        ...tracesOf(directory),
        ...(existsSync(snapshots) ? readdirSync(snapshots, { recursive: true }).map(String) : [])
      ]),
      patienceMs: PATIENCE_MS
    }
  })
)
