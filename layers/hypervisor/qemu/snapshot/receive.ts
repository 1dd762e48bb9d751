/** The host's end of the socket that QEMU sends a machine through. */
import * as fs from "node:fs"
import { createServer, type Socket } from "node:net"
import { Deferred, Effect, type Scope } from "effect"
import { openFile } from "../../../files/durable.ts"
import { type FileProblem, fileProblem, onFile } from "../../../files/problem.ts"
import { type MemoryWriter, makeMemoryWriter } from "./memory.ts"
import { makeMigrationStream, StreamError } from "./migration-stream.ts"

/** Why a machine did not arrive: a sentence's end. */
export interface NotReceived {
  readonly reason: string
}

/** What has arrived beside the memory, which is in its file, and on the disk. */
export interface Received {
  /** A checksum for each page. */
  readonly sums: Uint32Array
  readonly state: Uint8Array
}

/** Devices have some KiB of state, buffers included. A guest that gets QEMU to make more of it does not get the host's memory. */
const MAX_STATE_BYTES = 64 * 1024 * 1024

const reasonOf = (error: unknown, path: string) =>
  error instanceof StreamError ? error.message : fileProblem(path, error).message

/** Takes one connection to its end. The socket is waited for, and so is every write, whatever happens. */
const takeStream = (
  socket: Socket,
  memory: { readonly block: string; readonly bytes: number },
  path: string,
  fd: number
): Effect.Effect<Received, NotReceived> =>
  Effect.callback((resume) => {
    const rest: Array<Uint8Array> = []
    let restBytes = 0
    let over = false
    let writer: MemoryWriter
    const finish = (reason: string | undefined) => {
      if (over) return
      over = true
      socket.destroy()
      writer.finish((error) => {
        const problem = reason ?? (error === undefined ? undefined : reasonOf(error, path))
        resume(
          problem === undefined
            ? Effect.succeed({ sums: writer.sums, state: Buffer.concat(rest) })
            : Effect.fail({ reason: problem })
        )
      })
    }
    writer = makeMemoryWriter(fd, memory.bytes, () => {
      if (!over && socket.isPaused() && !writer.isFull()) socket.resume()
    })
    const stream = makeMigrationStream(memory, {
      page: writer.page,
      zeroPage: writer.zeroPage,
      rest: (bytes) => {
        restBytes += bytes.length
        if (restBytes > MAX_STATE_BYTES) throw new StreamError("has more state of devices than a machine has")
        rest.push(Uint8Array.from(bytes))
      }
    })
    const guarded = (work: () => void) => {
      try {
        work()
      } catch (error) {
        finish(reasonOf(error, path))
      }
    }
    socket.on("data", (piece: Uint8Array) => {
      guarded(() => stream.push(piece))
      if (writer.isFull()) socket.pause()
    })
    socket.on("end", () => {
      guarded(stream.end)
      finish(undefined)
    })
    socket.on("error", (error) => finish(error.message))
    socket.on("close", () => finish("QEMU hung up"))
    return Effect.callback<void>((done) => {
      over = true
      socket.destroy()
      writer.finish(() => done(Effect.void))
    })
  })

/**
 * Listens at `socketPath` for one machine. The effect that it gives waits for the machine, writes its memory to `memoryPath` and
 * flushes it. The listening ends with the scope.
 */
export const receiveMachine = (
  socketPath: string,
  memory: { readonly block: string; readonly bytes: number },
  memoryPath: string
): Effect.Effect<Effect.Effect<Received, NotReceived>, NotReceived, Scope.Scope> =>
  Effect.gen(function* () {
    const connected = yield* Deferred.make<Socket>()
    const failed = (problem: FileProblem) => ({ reason: problem.message })
    yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>, NotReceived>((resume) => {
        const server = createServer((socket) => {
          server.close()
          socket.on("error", () => undefined)
          if (!Deferred.doneUnsafe(connected, Effect.succeed(socket))) socket.destroy()
        })
        server.on("error", (error) => resume(Effect.fail({ reason: fileProblem(socketPath, error).message })))
        server.listen(socketPath, () => {
          fs.chmodSync(socketPath, 0o600)
          resume(Effect.succeed(server))
        })
      }),
      (server) =>
        Effect.sync(() => {
          server.close()
          fs.rmSync(socketPath, { force: true })
        })
    )
    const flags = fs.constants.O_WRONLY | fs.constants.O_CREAT | fs.constants.O_EXCL
    return Effect.gen(function* () {
      const file = yield* openFile(memoryPath, flags).pipe(Effect.mapError(failed))
      yield* onFile(memoryPath, () => file.truncate(memory.bytes)).pipe(Effect.mapError(failed))
      const socket = yield* Deferred.await(connected)
      const received = yield* takeStream(socket, memory, memoryPath, file.fd)
      yield* onFile(memoryPath, () => file.sync()).pipe(Effect.mapError(failed))
      return received
    }).pipe(Effect.scoped)
  })
