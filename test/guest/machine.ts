/**
 * A guest under a bare QEMU, and a host's end of its channel that does only what it is told: for tests of PID 1
 * that need to misbehave.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Result } from "effect"
import type { BootSpec, GuestEvent } from "../../src/services/Guest.ts"
import { encodeHostRecord, encodeReset } from "../../src/wire/encode.ts"
import { type GuestRecord, type HostRecord, PROTOCOL_VERSION } from "../../src/wire/records.ts"
import { makeGuestRecordDecoder } from "../../src/wire/stream.ts"

export interface Drives {
  readonly kernel: string
  readonly initramfs: string
  readonly base: string
  readonly layers: ReadonlyArray<string>
  readonly volume: string
  readonly tscKhz: number
}

/** How long an emulated guest on a busy machine may take for one thing. */
const PATIENCE_MS = 90_000

export class Machine {
  readonly directory = mkdtempSync(join(tmpdir(), "nbg-"))
  readonly socketPath = join(this.directory, "guest.sock")
  readonly qemu: ChildProcess
  readonly exited: Promise<number | null>
  private stderr = ""

  constructor(drives: Drives, options: { readonly memoryMib?: number } = {}) {
    const disks = [drives.base, ...drives.layers, drives.volume]
    const kernelLine = `console=ttyS0 quiet panic=-1 reboot=t cryptomgr.notests rcupdate.rcu_expedited=1 tsc_early_khz=${drives.tscKhz}`
    this.qemu = spawn(
      "qemu-system-x86_64",
      [
        ...["-M", "microvm", "-accel", "tcg", "-cpu", "max", "-smp", "1"],
        ...["-m", String(options.memoryMib ?? 256), "-nodefaults", "-no-user-config", "-display", "none"],
        ...["-no-reboot", "-serial", `file:${this.consolePath}`],
        ...["-kernel", drives.kernel, "-initrd", drives.initramfs, "-append", kernelLine],
        ...disks.flatMap((path, index) => [
          "-drive",
          `id=d${index},if=none,format=raw,file=${path}${index < disks.length - 1 ? ",readonly=on" : ""}`,
          "-device",
          `virtio-blk-device,drive=d${index}`
        ]),
        ...["-device", "virtio-serial-device"],
        ...["-chardev", `socket,id=guest,path=${this.socketPath},server=on,wait=off`],
        ...["-device", "virtserialport,chardev=guest,name=nibrunner.guest"],
        ...["-netdev", "user,id=n0,restrict=on,net=10.201.0.0/24,host=10.201.0.1"],
        ...["-device", "virtio-net-device,netdev=n0,mac=02:00:0a:c9:00:02"],
        ...["-object", "rng-random,id=r0,filename=/dev/urandom", "-device", "virtio-rng-device,rng=r0"]
      ],
      { stdio: ["ignore", "ignore", "pipe"] }
    )
    this.qemu.stderr?.on("data", (text) => {
      this.stderr += text
    })
    this.exited = new Promise((resolve) => this.qemu.once("exit", resolve))
  }

  private get consolePath() {
    return join(this.directory, "console.log")
  }

  /** What PID 1 and the kernel have printed. */
  get console(): string {
    return this.stderr + (existsSync(this.consolePath) ? readFileSync(this.consolePath, "utf8") : "")
  }

  /** A connection without a word said. */
  async connect(): Promise<Conversation> {
    const deadline = Date.now() + PATIENCE_MS
    for (;;) {
      if (this.qemu.exitCode !== null)
        throw new Error(`QEMU ended with ${this.qemu.exitCode}: ${this.console}`)
      const socket = await new Promise<Socket | undefined>((resolve) => {
        const attempt = connect(this.socketPath)
        attempt.once("connect", () => resolve(attempt))
        attempt.once("error", () => resolve(undefined))
      })
      if (socket !== undefined) return new Conversation(socket, this)
      if (Date.now() > deadline) throw new Error(`QEMU makes no socket: ${this.console}`)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }

  /** A connection that has exchanged hellos. */
  async greet(): Promise<Conversation> {
    const conversation = await this.connect()
    await conversation.hello()
    return conversation
  }

  async end(): Promise<void> {
    this.qemu.kill("SIGKILL")
    await this.exited
    rmSync(this.directory, { recursive: true, force: true })
  }
}

export class Conversation {
  readonly socket: Socket
  readonly machine: Machine
  /** Every record since the last hello that no one has waited for. */
  readonly records: Array<GuestRecord> = []
  /** Set to false to let PID 1's ring fill. */
  acknowledges = true
  error: Error | undefined
  private decoder = makeGuestRecordDecoder(new Uint8Array(16))
  private wake: () => void = () => {}

  constructor(socket: Socket, machine: Machine) {
    this.socket = socket
    this.machine = machine
    socket.on("error", () => {})
    socket.on("data", (bytes) => this.take(bytes))
  }

  private take(bytes: Uint8Array) {
    const decoded = this.decoder.push(bytes)
    if (Result.isFailure(decoded)) {
      this.error = decoded.failure
    } else {
      this.records.push(...decoded.success)
      const last = decoded.success.findLast((record) => record.kind === "event")
      if (this.acknowledges && last?.kind === "event") this.send({ kind: "ack", sequence: last.sequence })
    }
    this.wake()
  }

  send(record: HostRecord) {
    this.raw(Result.getOrThrow(encodeHostRecord(record)))
  }

  raw(bytes: Uint8Array) {
    this.socket.write(bytes)
  }

  /** The first record (not yet taken) that fits. Fails with what the guest has said when none comes. */
  async next<R extends GuestRecord>(what: string, fits: (record: GuestRecord) => record is R): Promise<R> {
    const deadline = Date.now() + PATIENCE_MS
    for (;;) {
      if (this.error !== undefined) throw this.error
      const index = this.records.findIndex(fits)
      const [record] = index === -1 ? [] : this.records.splice(index, 1)
      if (record !== undefined && fits(record)) return record
      if (Date.now() > deadline || this.machine.qemu.exitCode !== null) {
        throw new Error(
          `no ${what}; records: ${JSON.stringify(this.records)}; console: ${this.machine.console}`
        )
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 250)
        this.wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
  }

  async event<K extends GuestEvent["kind"]>(kind: K): Promise<Extract<GuestEvent, { readonly kind: K }>> {
    const record = await this.next(
      `event ${kind}`,
      (candidate): candidate is Extract<GuestRecord, { readonly kind: "event" }> =>
        candidate.kind === "event" && candidate.event?.kind === kind
    )
    return record.event as Extract<GuestEvent, { readonly kind: K }>
  }

  async hello() {
    const session = randomBytes(16)
    this.decoder = makeGuestRecordDecoder(session)
    this.records.length = 0
    this.raw(Result.getOrThrow(encodeReset(PROTOCOL_VERSION, session)))
    return await this.next(
      "answer to hello",
      (record): record is Extract<GuestRecord, { readonly kind: "hello-ack" }> => record.kind === "hello-ack"
    )
  }

  /** A datagram to a port of the guest. */
  datagram(flow: number, port: number, bytes: Uint8Array) {
    this.send({ kind: "datagram", flow, port, bytes })
  }

  /** The next datagram for this flow. */
  async reply(flow: number): Promise<Uint8Array> {
    const record = await this.next(
      `reply to flow ${flow}`,
      (candidate): candidate is Extract<GuestRecord, { readonly kind: "reply" }> =>
        candidate.kind === "reply" && candidate.flow === flow
    )
    return record.bytes
  }

  async boot(spec: BootSpec) {
    this.send({ kind: "boot-spec", spec })
    return await this.receipt()
  }

  async receipt() {
    return await this.next(
      "receipt",
      (record): record is Extract<GuestRecord, { readonly kind: "receipt" }> => record.kind === "receipt"
    )
  }

  private probes = 0
  async probe(port: number, timeoutMs = 10_000) {
    const id = ++this.probes
    this.send({ kind: "probe", id, port, timeoutMs })
    const result = await this.next(
      "probe result",
      (record): record is Extract<GuestRecord, { readonly kind: "probe-result" }> =>
        record.kind === "probe-result" && record.id === id
    )
    return result.outcome
  }

  /** Waits until what the program has printed on the stream holds the text; gives all of it. */
  async output(text: string, stream: "stdout" | "stderr" = "stdout"): Promise<string> {
    let printed = ""
    while (!printed.includes(text)) {
      const record = await this.next(
        `output ${JSON.stringify(text)} after ${JSON.stringify(printed.slice(-500))}`,
        (candidate): candidate is Extract<GuestRecord, { readonly kind: "event" }> =>
          candidate.kind === "event" &&
          candidate.event?.kind === "output" &&
          candidate.event.stream === stream
      )
      if (record.event?.kind === "output") printed += Buffer.from(record.event.bytes).toString()
    }
    return printed
  }

  close() {
    this.socket.destroy()
  }
}
