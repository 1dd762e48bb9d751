import { Effect } from "effect"
import { layerProxy } from "../../../layers/proxy/layer.ts"
import {
  layerProxyMemory,
  type MemoryAnswer,
  makeProxyWorld,
  openConnection,
  openRequest,
  request
} from "../../../layers/testing/Proxy.ts"
import { Proxy } from "../../../src/services/Proxy.ts"
import {
  type ProxyAddress,
  type ProxyAnswer,
  type ProxyHarness,
  proxyConformance
} from "../../conformance/proxy.ts"
import { dial, freePort, listenRaw, type Talk } from "./harness.ts"

const retrying = (retryAfter: number | undefined) => (retryAfter === undefined ? {} : { retryAfter })

const memory = Effect.sync((): ProxyHarness => {
  const world = makeProxyWorld()
  const names = new Map<number, string>()
  let nextPort = 2000
  const seen = (answer: MemoryAnswer): ProxyAnswer =>
    answer.kind === "app"
      ? { app: names.get(answer.port) ?? "unknown" }
      : { status: answer.status, reason: answer.reason, ...retrying(answer.retryAfter) }
  world.deaf.add("127.0.0.1:1")
  return {
    layer: layerProxyMemory(world),
    target: (name) =>
      Effect.sync(() => {
        const port = 1000 + names.size
        names.set(port, name)
        return { kind: "up", host: "127.0.0.1", port } as const
      }),
    deafTarget: { kind: "up", host: "127.0.0.1", port: 1 },
    guest: (name) =>
      Effect.sync(() => {
        const guestPort = 1000 + names.size
        names.set(guestPort, name)
        return { target: { kind: "up", host: "127.0.0.1", port: 1 } as const, guestPort }
      }),
    deafGuestPort: 1,
    connect: (hostPort) =>
      openConnection(world, hostPort).pipe(
        Effect.map(({ reached, close }) => ({
          app: reached === undefined ? undefined : names.get(reached.port),
          close
        }))
      ),
    freePort: Effect.sync(() => nextPort++),
    ask: (address) => request(world, address).pipe(Effect.map(seen)),
    hold: (address) =>
      openRequest(world, address).pipe(Effect.map(({ finish }) => ({ finish: Effect.map(finish, seen) })))
  }
})

const live = Effect.sync((): ProxyHarness => {
  /** Requests that wait for their answers, by their paths. */
  const held = new Map<string, () => void>()
  let asked = 0

  const answerBy = (name: string) => (talk: Talk) =>
    talk.socket.on("data", () => {
      const [, path = ""] = talk.take().split(" ")
      const answer = () => talk.write(`HTTP/1.1 200 OK\r\nContent-Length: ${name.length}\r\n\r\n${name}`)
      if (path.startsWith("/hold")) held.set(path, answer)
      else answer()
    })

  const send = (address: ProxyAddress, path: string) =>
    Effect.gen(function* () {
      const proxy = yield* Proxy
      const talk = yield* dial("hostPort" in address ? address.hostPort : (proxy.address?.port ?? 0))
      const host = "hostname" in address ? address.hostname : "any.test"
      talk.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
      return talk
    })

  const read = (talk: Talk): Effect.Effect<ProxyAnswer> =>
    Effect.gen(function* () {
      const head = yield* talk.head
      const status = Number(head.split(" ")[1])
      const length = Number(/content-length: (\d+)/iu.exec(head)?.[1])
      yield* talk.until(({ text }) => text.length >= length)
      const body = talk.take(length)
      const retryAfter = /retry-after: (\d+)/u.exec(head)?.[1]
      return status === 200
        ? { app: body }
        : {
            status,
            reason: body.trimEnd(),
            ...retrying(retryAfter === undefined ? undefined : Number(retryAfter))
          }
    })

  return {
    layer: layerProxy({
      listen: { address: "127.0.0.1", port: 0 },
      raw: { address: "127.0.0.1" },
      timeouts: { probe: 50, sweep: 20 },
      rawTimeouts: { settle: 0 }
    }),
    guest: (name) =>
      listenRaw((talk) => talk.socket.on("data", () => talk.write(`${name}\n`))).pipe(
        Effect.map(({ port }) => ({
          target: { kind: "up", host: "127.0.0.1", port: 1 } as const,
          guestPort: port
        }))
      ),
    deafGuestPort: 1,
    connect: (hostPort) =>
      Effect.gen(function* () {
        const talk = yield* dial(hostPort)
        talk.write("who is there?")
        yield* talk.until(({ text, closed }) => closed || text.endsWith("\n"))
        return {
          app: talk.closed ? undefined : talk.take().trim(),
          close: Effect.sync(() => void talk.socket.resetAndDestroy())
        }
      }),
    target: (name) =>
      listenRaw(answerBy(name)).pipe(
        Effect.map(({ port }) => ({ kind: "up", host: "127.0.0.1", port }) as const)
      ),
    deafTarget: { kind: "up", host: "127.0.0.1", port: 1 },
    freePort,
    ask: (address) => Effect.scoped(send(address, "/").pipe(Effect.flatMap(read))),
    hold: (address) =>
      Effect.gen(function* () {
        const path = `/hold-${asked++}`
        const talk = yield* send(address, path)
        yield* Effect.sync(() => held.get(path)).pipe(
          Effect.tap((answer) => (answer === undefined ? Effect.sleep(5) : Effect.void)),
          Effect.repeat({ until: (answer) => answer !== undefined })
        )
        return {
          finish: Effect.suspend(() => {
            held.get(path)?.()
            return read(talk)
          })
        }
      })
  }
})

proxyConformance("the in-memory proxy", memory)
proxyConformance("the HTTP proxy", live)
