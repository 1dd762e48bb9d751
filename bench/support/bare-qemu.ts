/**
 * The least that boots the same guest: QEMU with the same kernel, image and disks, and of the guest channel only
 * what a boot and an orderly end need. No daemon, no document, no proxy, no report.
 *
 * Plain Node on purpose: it is what somebody would write who wants one microVM and nothing else.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdtempSync, rmSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Result } from "effect"
import type { BootSpec } from "../../src/services/Guest.ts"
import { encodeHostRecord, encodeReset } from "../../src/wire/encode.ts"
import { type HostRecord, PROTOCOL_VERSION, SESSION_BYTES } from "../../src/wire/records.ts"
import { makeGuestRecordDecoder } from "../../src/wire/stream.ts"

export interface BareMachine {
  readonly qemu: string
  readonly kvm: boolean
  readonly kernel: string
  readonly initramfs: string
  /** The program that prints the TSC's frequency. */
  readonly tscProbe: string
  /** In the order in which the guest sees them: base, layers, and the volume, which alone is writable. */
  readonly drives: ReadonlyArray<string>
  readonly memoryMib: number
  readonly vcpuCount: number
  readonly guestPort: number
  /** Where the guest's port is forwarded to, on 127.0.0.1. */
  readonly hostPort: number
  readonly spec: Omit<BootSpec, "network" | "nameservers" | "hostTime">
}

const network = { address: "10.0.2.15", prefixLength: 24, gateway: "10.0.2.2" }

const drive = (path: string, index: number, all: ReadonlyArray<string>): ReadonlyArray<string> => {
  const writable = index === all.length - 1
  return [
    "-drive",
    `if=none,id=d${index},format=raw,file=${path}${writable ? "" : ",readonly=on"}`,
    "-device",
    `virtio-blk-device,drive=d${index}`
  ]
}

const qemuArguments = (machine: BareMachine, channel: string, tscKhz: string): ReadonlyArray<string> => [
  "-M",
  `microvm,accel=${machine.kvm ? "kvm" : "tcg"}`,
  "-cpu",
  machine.kvm ? "host" : "max",
  "-smp",
  String(machine.vcpuCount),
  "-m",
  `${machine.memoryMib}M`,
  "-nodefaults",
  "-no-user-config",
  "-display",
  "none",
  "-no-reboot",
  "-kernel",
  machine.kernel,
  "-initrd",
  machine.initramfs,
  "-append",
  `quiet panic=-1 no_timer_check random.trust_cpu=on rcupdate.rcu_expedited=1 cryptomgr.notests${
    machine.kvm ? "" : ` tsc=reliable tsc_early_khz=${tscKhz}`
  }`,
  "-chardev",
  `socket,id=guest,path=${channel},server=on,wait=off`,
  "-device",
  "virtio-serial-device",
  "-device",
  "virtserialport,chardev=guest,name=nibrunner.guest",
  "-device",
  "virtio-rng-device",
  "-netdev",
  `user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:${machine.hostPort}-${network.address}:${machine.guestPort}`,
  "-device",
  "virtio-net-device,netdev=net",
  ...machine.drives.flatMap(drive)
]

/** Connects as soon as QEMU listens. */
const dial = (path: string, child: ChildProcess): Promise<Socket> =>
  new Promise((resolve, reject) => {
    const attempt = () => {
      if (child.exitCode !== null) return reject(new Error(`QEMU ended with code ${child.exitCode}`))
      const socket = connect(path)
      socket.once("connect", () => resolve(socket))
      socket.once("error", () => setTimeout(attempt, 2))
    }
    attempt()
  })

const write = (socket: Socket, record: HostRecord) => {
  socket.write(Result.getOrThrow(encodeHostRecord(record)))
}

/** A bare microVM that runs. */
export interface BareRun {
  /** How far it has come, for the sentence of a failure. */
  readonly progress: () => string
  /** Ends it in order, so that its volume is left as clean as it was found; waits until QEMU is gone. */
  readonly end: () => Promise<void>
}

/** The frequency of the TSC, measured beforehand: it is no part of a boot. */
export const measureTsc = (machine: Pick<BareMachine, "tscProbe">): string =>
  execFileSync(machine.tscProbe, { encoding: "utf8" }).trim()

/** Starts QEMU and hands the boot spec over as soon as PID 1 answers. Gives at once what can end it. */
export const bootBare = (machine: BareMachine, tscKhz: string): BareRun => {
  const folder = mkdtempSync(join(tmpdir(), "nibrunner-bare-"))
  const path = join(folder, "guest.sock")
  const child = spawn(machine.qemu, qemuArguments(machine, path, tscKhz), {
    stdio: ["ignore", "ignore", "inherit"]
  })
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()))
  const session = new Uint8Array(randomBytes(SESSION_BYTES))
  const decoder = makeGuestRecordDecoder(session)

  let heard = "nothing was heard of PID 1"

  const handedOver = dial(path, child).then((socket) => {
    socket.on("error", () => socket.destroy())
    socket.write(Result.getOrThrow(encodeReset(PROTOCOL_VERSION, session)))
    socket.on("data", (piece) => {
      for (const record of Result.getOrThrow(decoder.push(piece))) {
        heard = `PID 1 last said ${record.kind === "event" ? record.event?.kind : record.kind}`
        if (record.kind === "event") write(socket, { kind: "ack", sequence: record.sequence })
        if (record.kind !== "hello-ack") continue
        write(socket, {
          kind: "boot-spec",
          spec: { ...machine.spec, network, nameservers: [], hostTime: Date.now() }
        })
      }
    })
    return socket
  })
  handedOver.catch(() => undefined)

  return {
    progress: () =>
      `${child.exitCode === null ? "QEMU runs" : `QEMU ended with ${child.exitCode}`}, ${heard}`,
    end: async () => {
      const late = setTimeout(() => child.kill("SIGKILL"), 30_000)
      await handedOver.then(
        (socket) => write(socket, { kind: "shutdown", graceMs: 5_000 }),
        () => child.kill("SIGKILL")
      )
      await ended
      clearTimeout(late)
      rmSync(folder, { recursive: true })
    }
  }
}
