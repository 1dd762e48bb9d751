/** The host's end of the socket that QEMU sends a machine through. */
import * as fs from "node:fs"
import { createServer, type Socket } from "node:net"
import { Deferred, Effect, type Scope } from "effect"
import type { VmmIdentity } from "../../../../src/hypervisor/identity.ts"
import { openFile } from "../../../files/durable.ts"
import { type FileProblem, fileProblem, onFile } from "../../../files/problem.ts"
import { type Extents, makeMemoryWriter } from "./memory.ts"
import { makeMigrationStream, StreamError } from "./migration-stream.ts"

/** Why a machine did not arrive: a sentence's end. */
export interface NotReceived {
  readonly reason: string
}

/** What has arrived beside the memory, which is in its file, and on the disk. */
export interface Received {
  readonly extents: Extents
  /** What the memory takes of the disk. */
  readonly memoryBytes: number
  readonly state: Uint8Array
}

/** Where QEMU is to connect to, and who it is. */
export interface SaveSocket {
  /** In a directory that only the daemon changes. */
  readonly path: string
  /** Undefined: the daemon's own user. */
  readonly owner: VmmIdentity | undefined
}

/** Devices have some KiB of state, buffers included. A guest that gets QEMU to make more of it does not get the host's memory. */
const MAX_STATE_BYTES = 64 * 1024 * 1024

const reasonOf = (error: unknown, path: string) =>
  error instanceof StreamError ? error.message : fileProblem(path, error).message

/**
 * Node reads a socket 64 KiB at a time on its main thread, which takes three times as long as all the rest of a sleep. So the
 * socket's descriptor is read like a file's, off the main thread and in large pieces. It is not blocking: where nothing
 * has come, it is asked again.
 */
const READ_BYTES = 1024 * 1024
/** QEMU sends without a pause: so often it is asked again at once, then after a wait. */
const EAGER_TRIES = 200
const WAIT_MS = 2

const descriptorOf = (socket: Socket): number => {
  const { _handle } = socket as unknown as { readonly _handle?: { readonly fd?: number } | null }
  return _handle?.fd ?? -1
}

/** Takes one connection to its end. Every read and write that is under way is waited for, whatever happens. */
const takeStream = (
  socket: Socket,
  memory: { readonly block: string; readonly bytes: number },
  path: string,
  fd: number
): Effect.Effect<Omit<Received, "memoryBytes">, NotReceived> =>
  Effect.callback((resume) => {
    const from = descriptorOf(socket)
    const buffer = Buffer.allocUnsafe(READ_BYTES)
    const rest: Array<Uint8Array> = []
    let restBytes = 0
    let tries = 0
    let reading = false
    /** Set once: what is done when no read is under way any more. */
    let over: (() => void) | undefined
    let finished = false
    const onFinished: Array<() => void> = []

    const stream = makeMigrationStream(memory, {
      page: (offset, bytes, at) => writer.page(offset, bytes, at),
      zeroPage: (offset) => writer.zeroPage(offset),
      rest: (bytes) => {
        restBytes += bytes.length
        if (restBytes > MAX_STATE_BYTES) throw new StreamError("has more state of devices than a machine has")
        rest.push(Uint8Array.from(bytes))
      }
    })
    const finish = (answer: (error: unknown) => void) => {
      if (over !== undefined) return
      over = () =>
        writer.finish((error) => {
          finished = true
          answer(error)
          for (const then of onFinished) then()
        })
      if (!reading) over()
    }
    const succeed = () =>
      finish((error) =>
        resume(
          error === undefined
            ? Effect.succeed({ extents: writer.extents(), state: Buffer.concat(rest) })
            : Effect.fail({ reason: reasonOf(error, path) })
        )
      )
    const fail = (reason: string) => finish(() => resume(Effect.fail({ reason })))

    const take = (count: number) => {
      try {
        if (count > 0) return stream.push(buffer.subarray(0, count))
        stream.end()
        succeed()
      } catch (error) {
        fail(reasonOf(error, path))
      }
    }
    const next = () => {
      if (over !== undefined || reading || writer.isFull()) return
      reading = true
      fs.read(from, buffer, 0, READ_BYTES, null, (error, count) => {
        reading = false
        if (over !== undefined) return over()
        if (error?.code === "EAGAIN") {
          tries += 1
          if (tries <= EAGER_TRIES) setImmediate(next)
          else setTimeout(next, WAIT_MS)
          return
        }
        tries = 0
        if (error !== null) fail(`QEMU hung up: ${error.message}`)
        else take(count)
        next()
      })
    }
    const writer = makeMemoryWriter(fd, memory.bytes, next)
    if (from < 0) fail("this Node.js does not tell the descriptor of a socket")
    next()
    return Effect.callback<void>((done) => {
      // It may have failed a moment ago, and be about to say so.
      if (finished) return done(Effect.void)
      onFinished.push(() => done(Effect.void))
      finish(() => undefined)
    })
  })

/**
 * Listens at the socket for one machine. The effect that it gives waits for the machine, writes its memory to `memoryPath` and
 * flushes it, with `beside` going on meanwhile. The listening ends with the scope.
 */
export const receiveMachine = (
  { path: socketPath, owner }: SaveSocket,
  memory: { readonly block: string; readonly bytes: number },
  memoryPath: string,
  beside: (received: Omit<Received, "memoryBytes">) => Effect.Effect<void, FileProblem>
): Effect.Effect<Effect.Effect<Received, NotReceived>, NotReceived, Scope.Scope> =>
  Effect.gen(function* () {
    const connected = yield* Deferred.make<Socket>()
    const failed = (problem: FileProblem) => ({ reason: problem.message })
    let accepted: Socket | undefined
    yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>, NotReceived>((resume) => {
        const server = createServer({ pauseOnConnect: true }, (socket) => {
          server.close()
          socket.on("error", () => undefined)
          accepted = socket
          if (!Deferred.doneUnsafe(connected, Effect.succeed(socket))) socket.destroy()
        })
        server.on("error", (error) => resume(Effect.fail({ reason: fileProblem(socketPath, error).message })))
        // A daemon that died over a sleep has left its own.
        fs.rmSync(socketPath, { force: true })
        server.listen(socketPath, () => {
          fs.chmodSync(socketPath, 0o600)
          if (owner !== undefined) fs.chownSync(socketPath, owner.uid, owner.gid)
          resume(Effect.succeed(server))
        })
      }),
      (server) =>
        Effect.sync(() => {
          server.close()
          accepted?.destroy()
          fs.rmSync(socketPath, { force: true })
        })
    )
    const flags = fs.constants.O_RDWR | fs.constants.O_CREAT | fs.constants.O_EXCL
    return Effect.gen(function* () {
      const file = yield* openFile(memoryPath, flags).pipe(Effect.mapError(failed))
      yield* onFile(memoryPath, () => file.truncate(memory.bytes)).pipe(Effect.mapError(failed))
      const socket = yield* Deferred.await(connected)
      const received = yield* takeStream(socket, memory, memoryPath, file.fd)
      yield* Effect.all([onFile(memoryPath, () => file.sync()), beside(received)], {
        concurrency: "unbounded",
        discard: true
      }).pipe(Effect.mapError(failed))
      const { blocks } = yield* onFile(memoryPath, () => file.stat()).pipe(Effect.mapError(failed))
      return { ...received, memoryBytes: blocks * 512 }
    }).pipe(Effect.scoped)
  })
