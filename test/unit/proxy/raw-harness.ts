/** Raw ports in front of a guest that is this process. */
import { createSocket, type RemoteInfo } from "node:dgram"
import { Deferred, Effect } from "effect"
import type { RawLimits, RawTimeouts } from "../../../layers/proxy/raw/limits.ts"
import type { AsleepTarget, UnavailableTarget, UpTarget } from "../../../src/services/Proxy.ts"
import { appId, freePort, startProxy } from "./harness.ts"

/** One UDP socket of a test, with everything that came to it. */
export interface Datagrams {
  readonly port: number
  readonly received: ReadonlyArray<string>
  readonly senders: ReadonlyArray<RemoteInfo>
  readonly send: (text: string | Buffer, port: number) => void
  /** Waits for the datagram of this number, counted from 0. */
  readonly datagram: (index: number) => Effect.Effect<string>
}

export const openDatagrams = (
  port = 0,
  onDatagram?: (text: string, answer: (text: string | Buffer) => void) => void
) =>
  Effect.gen(function* () {
    const received: Array<string> = []
    const senders: Array<RemoteInfo> = []
    const watchers = new Set<() => void>()
    const socket = createSocket("udp4")
    socket.on("message", (bytes, from) => {
      received.push(bytes.toString("latin1"))
      senders.push(from)
      onDatagram?.(bytes.toString("latin1"), (text) => socket.send(text, from.port, from.address))
      for (const watcher of [...watchers]) watcher()
    })
    socket.on("error", () => undefined)
    yield* Effect.acquireRelease(
      Effect.callback<void>((resume) => {
        socket.bind(port, "127.0.0.1", () => resume(Effect.void))
      }),
      () => Effect.sync(() => socket.close())
    )
    const datagram = (index: number) =>
      Effect.callback<string>((resume) => {
        const check = () => {
          const text = received[index]
          if (text === undefined) return
          watchers.delete(check)
          resume(Effect.succeed(text))
        }
        watchers.add(check)
        check()
      }).pipe(
        Effect.timeoutOrElse({
          duration: "40 seconds",
          orElse: () => Effect.die(new Error(`datagram ${index} never came; there are ${received.length}`))
        })
      )
    return {
      port: socket.address().port,
      received,
      senders,
      send: (text, to) => socket.send(text, to, "127.0.0.1"),
      datagram
    } satisfies Datagrams
  })

/** A proxy with one raw port in front of `guestPort`, and the app behind it up. */
export const rawPort = (
  guestPort: number,
  rawTimeouts: Partial<RawTimeouts> = {},
  rawLimits: Partial<RawLimits> = {}
) =>
  Effect.gen(function* () {
    const hostPort = yield* freePort
    const { proxy } = yield* startProxy(
      { sweep: 20 },
      { raw: { address: "127.0.0.1" }, rawTimeouts, rawLimits }
    )
    const up: UpTarget = { kind: "up", host: "127.0.0.1", port: 1 }
    const route = { appId, hostnames: [], rawPorts: [{ name: "echo", hostPort, guestPort }] }
    yield* proxy.setRoute({ ...route, target: up })
    const app = Effect.map(proxy.traffic, ({ apps }) => apps.get(appId))

    /** Puts the app to sleep until the test wakes it. */
    const sleep = Effect.gen(function* () {
      const outcome = yield* Deferred.make<UpTarget | UnavailableTarget>()
      const asked = { count: 0 }
      const target: AsleepTarget = {
        kind: "asleep",
        wake: Effect.suspend(() => {
          asked.count++
          return Deferred.await(outcome)
        })
      }
      yield* proxy.setRoute({ ...route, target })
      return {
        asked,
        wake: Deferred.succeed(outcome, up),
        wakeTo: (to: UpTarget | UnavailableTarget) => Deferred.succeed(outcome, to)
      }
    })
    return { proxy, hostPort, route, up, app, sleep }
  })
