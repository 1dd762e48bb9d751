/** Another machine, behind an interface of the tests' own. */
import { execFileSync } from "node:child_process"
import { connect } from "node:net"
import { join } from "node:path"
import { Deferred, Effect, Queue, type Scope } from "effect"
import { lineChild } from "./child.ts"

/** The port on which every address of a peer answers, TCP and UDP. */
export const PEER_PORT = 8080

/** The addresses of the peer that the tests take for the internet and for all else beyond the host. */
export const INTERNET = "203.0.113.2"
/** On the internet, and denied by configuration in some tests. */
export const DENIED = "198.51.100.7"
export const DENIED_RANGE = "198.51.100.0/28"
/** Beside the range that is denied. */
export const NOT_DENIED = "198.51.100.17"
export const METADATA = "169.254.169.254"
export const PRIVATE = ["10.77.0.5", "172.16.9.9", "192.168.77.5", "100.64.3.3"]
export const INTERNET6 = "2001:db8::2"
/** The host's own addresses on that side. */
export const HOST = "203.0.113.1"
export const HOST6 = "2001:db8::1"

export interface Told {
  readonly text?: string
  readonly error?: string
  readonly from?: string
}

interface Options {
  readonly name?: string
  readonly host?: string
  readonly port?: number
  readonly text?: string
  readonly waitMs?: number
  readonly bytes?: number
}

export interface Peer {
  readonly tell: (
    op: "connect" | "ask" | "close" | "datagram" | "heard" | "pump",
    options: Options
  ) => Effect.Effect<Told>
}

const run = (program: string, ...args: ReadonlyArray<string>) => void execFileSync(program, args)

const addresses = [INTERNET, DENIED, NOT_DENIED, METADATA, ...PRIVATE]

/** Makes the peer, and routes of the host to it. The host's default route is the peer. */
export const makePeer: Effect.Effect<Peer, never, Scope.Scope> = Effect.gen(function* () {
  const child = yield* lineChild("unshare", [
    "--net",
    "--",
    "sh",
    "-c",
    'ip link set lo up; read -r go; exec "$0" "$@"',
    process.execPath,
    join(import.meta.dirname, "peer-child.ts"),
    String(PEER_PORT),
    ...addresses,
    INTERNET6
  ])
  const pid = String(child.process.pid)
  // The child's namespace is there once it differs from ours.
  yield* Effect.suspend(() => {
    const [ours, theirs] = [process.pid, pid].map((of) =>
      execFileSync("readlink", [`/proc/${of}/ns/net`]).toString()
    )
    return ours === theirs ? Effect.fail("not yet") : Effect.void
  }).pipe(Effect.eventually)
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      run("ip", "link", "add", "test-out", "type", "veth", "peer", "name", "eth0", "netns", pid)
      run("ip", "address", "add", `${HOST}/24`, "dev", "test-out")
      run("ip", "-6", "address", "add", `${HOST6}/64`, "dev", "test-out", "nodad")
      run("ip", "link", "set", "test-out", "up")
      const there = (...args: ReadonlyArray<string>) => run("nsenter", "-t", pid, "-n", "ip", ...args)
      there("address", "add", `${INTERNET}/24`, "dev", "eth0")
      there("-6", "address", "add", `${INTERNET6}/64`, "dev", "eth0", "nodad")
      there("link", "set", "eth0", "up")
      for (const address of addresses.slice(1)) there("address", "add", `${address}/32`, "dev", "eth0")
      run("ip", "route", "add", "default", "via", INTERNET)
      // As a machine of the same network could have it: guests by their own addresses, past all forwards.
      there("route", "add", "10.201.0.0/16", "via", HOST)
    }),
    () => Effect.sync(() => run("ip", "link", "delete", "test-out"))
  )
  child.write("go")
  const waiting = new Map<number, Deferred.Deferred<Told>>()
  yield* Queue.take(child.lines)
  yield* Effect.forkScoped(
    Effect.forever(
      Effect.flatMap(Queue.take(child.lines), (line) => {
        const { id, ...told } = JSON.parse(line)
        const waits = waiting.get(id)
        return waits === undefined ? Effect.void : Deferred.succeed(waits, told)
      })
    )
  )
  let next = 0
  return {
    tell: (op, options) =>
      Effect.gen(function* () {
        const id = next++
        const answer = yield* Deferred.make<Told>()
        waiting.set(id, answer)
        child.write(
          JSON.stringify({
            name: "",
            host: "",
            port: PEER_PORT,
            text: "",
            waitMs: 10_000,
            id,
            op,
            ...options
          })
        )
        return yield* Deferred.await(answer)
      })
  }
})

/** Whether the host itself connects. */
export const connects = (host: string, port: number): Effect.Effect<string> =>
  Effect.callback((resume) => {
    const socket = connect({ host, port })
    socket.once("connect", () => {
      socket.destroy()
      resume(Effect.succeed("connected"))
    })
    socket.once("error", (error) => resume(Effect.succeed(error.message)))
  })
