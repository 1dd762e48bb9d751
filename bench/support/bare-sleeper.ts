/**
 * The least that wakes the same guest from the same files: QEMU with the same devices and disks, its memory mapped from
 * the snapshot's file, the state of its devices read from the other; one word to QEMU to let it run, one to PID 1 to thaw
 * the program. No daemon, no check, no confinement, no proxy.
 *
 * Plain Node on purpose: it is what somebody would write who wants one microVM and nothing else.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { closeSync, constants, copyFileSync, fsync, linkSync, mkdtempSync, openSync, rmSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { join } from "node:path"
import { Result } from "effect"
import { encodeHostRecord, encodeReset } from "../../src/wire/encode.ts"
import { type HostRecord, PROTOCOL_VERSION, SESSION_BYTES } from "../../src/wire/records.ts"
import { makeGuestRecordDecoder } from "../../src/wire/stream.ts"

/** A machine that sleeps, in files of its own. */
export interface Sleeper {
  readonly folder: string
  /** The command line that its VMM was booted with. */
  readonly booted: ReadonlyArray<string>
  readonly memory: string
  readonly state: string
  readonly volume: string
  readonly guestPort: number
}

/** Files of the sleeping machine beside those that its host will use: the same memory, the same state, a copy of its disk. */
export const keepSleeper = (
  parent: string,
  booted: ReadonlyArray<string>,
  snapshot: string,
  guestPort: number
): Sleeper => {
  const folder = mkdtempSync(join(parent, "bare-"))
  const sleeper = {
    folder,
    booted,
    memory: join(folder, "memory"),
    state: join(folder, "state"),
    volume: join(folder, "volume"),
    guestPort
  }
  linkSync(join(snapshot, "memory"), sleeper.memory)
  linkSync(join(snapshot, "state"), sleeper.state)
  copyFileSync(volumeOf(booted), sleeper.volume, constants.COPYFILE_FICLONE)
  return sleeper
}

export const forgetSleeper = ({ folder }: Sleeper) => rmSync(folder, { recursive: true, force: true })

/** The file of the writable drive. */
const volumeOf = (booted: ReadonlyArray<string>): string => {
  const drives = booted.flatMap((word, at) => (booted[at - 1] === "-blockdev" ? [JSON.parse(word)] : []))
  return drives.find((drive) => drive["node-name"] === "volume").file.filename
}

const memoryOf = (booted: ReadonlyArray<string>) => booted[booted.indexOf("-m") + 1] ?? ""

const VALUE_OF = new Set(["-name", "-sandbox", "-kernel", "-initrd", "-append", "-incoming", "-object"])

/** The options of the booted machine with what a bare one has in place of the host's. */
const bareArguments = (
  { booted, volume }: Sleeper,
  folder: string,
  hostPort: number,
  guestPort: number,
  memory: ReadonlyArray<string>
): ReadonlyArray<string> => {
  const start = booted.indexOf("-name")
  const kept = booted
    .slice(start)
    .filter((word, at, all) => !VALUE_OF.has(word) && !VALUE_OF.has(all[at - 1] ?? "") && word !== "-S")
  return [
    ...kept.map((word, at) => {
      const before = kept[at - 1]
      if (before === "-machine") return memory.length > 0 ? "microvm,memory-backend=microvm.ram" : "microvm"
      if (before === "-chardev")
        return word.replace(/fd=\d+/u, `path=${folder}/${/id=(\w+)/u.exec(word)?.[1]}`)
      if (before === "-netdev") {
        const guest = /hostfwd=tcp:[\d.]+:\d+-([\d.]+):/u.exec(word)?.[1]
        return `${word.replace(/,hostfwd=.*$/u, "")},hostfwd=tcp:127.0.0.1:${hostPort}-${guest}:${guestPort}`
      }
      return word.replace(JSON.stringify(volumeOf(booted)), JSON.stringify(volume))
    }),
    ...memory,
    "-incoming",
    "fd:3"
  ]
}

/** Connects as soon as QEMU listens. */
const dial = (path: string, child: ChildProcess): Promise<Socket> =>
  new Promise((resolve, reject) => {
    const attempt = () => {
      const { exitCode, signalCode } = child
      if (exitCode !== null || signalCode !== null)
        return reject(new Error(`QEMU ended with ${exitCode ?? signalCode}`))
      const socket = connect(path)
      socket.once("connect", () => resolve(socket))
      socket.once("error", () => setTimeout(attempt, 2))
    }
    attempt()
  })

/** A command of QMP and its answer, one at a time. */
const makeQmp = (socket: Socket) => {
  let said = ""
  let waiting: ((answer: Record<string, unknown>) => void) | undefined
  let hangUp: () => void = () => undefined
  socket.setEncoding("utf8")
  socket.on("close", () => hangUp())
  socket.on("error", () => socket.destroy())
  socket.on("data", (piece: string) => {
    const lines = (said + piece).split("\n")
    said = lines.pop() ?? ""
    for (const line of lines) {
      const message = JSON.parse(line) as Record<string, unknown>
      if ("return" in message || "error" in message) waiting?.(message)
    }
  })
  return (command: string, parameters?: Record<string, unknown>) =>
    new Promise<Record<string, unknown>>((resolve, reject) => {
      hangUp = () => reject(new Error("QEMU hung up"))
      waiting = (answer) =>
        "error" in answer ? reject(new Error(JSON.stringify(answer.error))) : resolve(answer)
      socket.write(`${JSON.stringify({ execute: command, arguments: parameters })}\n`)
    })
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Says hello to PID 1, and thaws the program when it answers. */
const thaw = (socket: Socket) => {
  const session = new Uint8Array(randomBytes(SESSION_BYTES))
  const decoder = makeGuestRecordDecoder(session)
  const write = (record: HostRecord) => socket.write(Result.getOrThrow(encodeHostRecord(record)))
  socket.on("error", () => socket.destroy())
  socket.on("data", (piece) => {
    for (const record of Result.getOrThrow(decoder.push(piece))) {
      if (record.kind === "event") write({ kind: "ack", sequence: record.sequence })
      if (record.kind === "hello-ack") write({ kind: "thaw", hostTime: Date.now() })
    }
  })
  socket.write(Result.getOrThrow(encodeReset(PROTOCOL_VERSION, session)))
}

/** A bare machine that was started; nothing of it has been waited for. */
export interface BareSleeper {
  readonly hostPort: number
  /** Rejected when it cannot be restored. */
  readonly restored: Promise<void>
  /** Pauses it, writes it as one stream, and has that on the disk. */
  readonly save: (stream: string) => Promise<void>
  readonly end: () => Promise<void>
}

const start = (sleeper: Sleeper, hostPort: number, memory: ReadonlyArray<string>, stateFile: string) => {
  const folder = mkdtempSync(join(sleeper.folder, "run-"))
  const state = openSync(stateFile, "r")
  const args = bareArguments(sleeper, folder, hostPort, sleeper.guestPort, memory)
  const child = spawn(sleeper.booted[sleeper.booted.indexOf("-name") - 1] ?? "", args, {
    stdio: ["ignore", "ignore", "inherit", state]
  })
  closeSync(state)
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()))
  const control = dial(join(folder, "qmp"), child).then(async (socket) => {
    const qmp = makeQmp(socket)
    await qmp("qmp_capabilities")
    for (;;) {
      const { status } = (await qmp("query-status")).return as { readonly status: string }
      if (status !== "inmigrate") return qmp
      await pause(1)
    }
  })
  const end = async () => {
    child.kill("SIGKILL")
    await ended
  }
  return { folder, child, control, end }
}

/** QEMU tells when it is done; it is asked as often as a host would. */
const writeStream = async (qmp: ReturnType<typeof makeQmp>, stream: string) => {
  await qmp("migrate-set-parameters", { "max-bandwidth": 2 ** 45 })
  await qmp("migrate", { uri: `exec:cat >${stream}` })
  for (;;) {
    const { status } = (await qmp("query-migrate")).return as { readonly status: string }
    if (status === "completed") return
    if (status === "failed" || status === "cancelled") throw new Error(`QEMU's save ${status}`)
    await pause(2)
  }
}

const mapped = ({ booted, memory }: Sleeper) => [
  "-object",
  `memory-backend-file,id=microvm.ram,size=${memoryOf(booted)},mem-path=${memory},share=off`
]

const letGo = ({ folder, child, control, end }: ReturnType<typeof start>, hostPort: number): BareSleeper => {
  const greeted = dial(join(folder, "guest"), child).then(thaw)
  greeted.catch(() => undefined)
  const save = async (stream: string) => {
    const qmp = await control
    await qmp("stop")
    await writeStream(qmp, stream)
    const file = openSync(stream, "r+")
    await new Promise<void>((resolve, reject) =>
      fsync(file, (error) => (error === null ? resolve() : reject(error)))
    )
    closeSync(file)
  }
  return { hostPort, restored: control.then((qmp) => qmp("cont")).then(() => undefined), save, end }
}

/** Restores it in the way of the host: the memory is mapped. */
export const wakeBare = (sleeper: Sleeper, hostPort: number): BareSleeper =>
  letGo(start(sleeper, hostPort, mapped(sleeper), sleeper.state), hostPort)

/** Restores it from one stream that holds all, as QEMU itself saves a machine. */
export const wakeStreamed = (sleeper: Sleeper, stream: string, hostPort: number): BareSleeper =>
  letGo(start(sleeper, hostPort, [], stream), hostPort)

/** Has QEMU write the sleeping machine as one stream, which is what a plain save is. */
export const saveStream = async (sleeper: Sleeper, stream: string, hostPort: number): Promise<void> => {
  const { control, end } = start(sleeper, hostPort, mapped(sleeper), sleeper.state)
  try {
    await writeStream(await control, stream)
  } finally {
    await end()
  }
}
