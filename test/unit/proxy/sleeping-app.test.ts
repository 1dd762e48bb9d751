import { Agent, createServer, request as httpRequest, type Server } from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import fc from "fast-check"
import type { AsleepTarget, UpTarget } from "../../../src/services/Proxy.ts"
import { appId, eventually, freePort, openRequests, startProxy } from "./harness.ts"

/** What an app has done in all its lives. */
interface Deeds {
  lives: number
  /** How often each request was carried out. */
  readonly done: Map<string, number>
}

/** An app that is there while its server is; its port stays the same over its lives, as a guest's does. */
const makeApp = (port: number, deeds: Deeds) => {
  let server: Server | undefined
  const start = Effect.callback<void>((resume) => {
    deeds.lives++
    server = createServer({ keepAliveTimeout: 3_000 }, (request, response) => {
      let bytes = 0
      request.on("data", (piece: Buffer) => {
        bytes += piece.length
      })
      request.on("end", () => {
        const id = request.headers["x-id"] as string
        deeds.done.set(id, (deeds.done.get(id) ?? 0) + 1)
        setTimeout(() => response.end(`${id} ${bytes}`), Number(request.headers["x-wait"]))
      })
    }).listen(port, "127.0.0.1", () => resume(Effect.void))
  })
  /** As a microVM ends: everything at once. */
  const end = Effect.callback<void>((resume) => {
    const ending = server
    server = undefined
    if (ending === undefined) return resume(Effect.void)
    ending.close(() => resume(Effect.void))
    ending.closeAllConnections()
  })
  return { start, end }
}

interface Step {
  readonly method: "GET" | "PUT" | "POST"
  readonly bytes: number
  readonly wait: number
  readonly pause: number
  readonly sleep: boolean
}

const steps = fc.record<Step>({
  method: fc.constantFrom("GET", "PUT", "POST"),
  bytes: fc.oneof(fc.constant(0), fc.nat(1_000), fc.nat(200_000)),
  wait: fc.nat(8),
  pause: fc.nat(6),
  sleep: fc.nat(3).map((n) => n === 0)
})

const ask = (agent: Agent, port: number, id: string, { method, bytes, wait }: Step) =>
  Effect.callback<string>((resume) => {
    const body = method === "GET" ? "" : "x".repeat(bytes)
    const headers = { host: "app.test", "x-id": id, "x-wait": String(wait), "content-length": body.length }
    const asked = httpRequest({ agent, host: "127.0.0.1", port, method, headers }, (answer) => {
      let text = ""
      answer.setEncoding("latin1").on("data", (piece: string) => {
        text += piece
      })
      answer.on("end", () => resume(Effect.succeed(`${answer.statusCode} ${text}`)))
      answer.on("error", (error) => resume(Effect.succeed(String(error))))
    })
    asked.on("error", (error) => resume(Effect.succeed(String(error))))
    asked.end(body)
  }).pipe(Effect.map((got) => ({ got, expected: `200 ${id} ${method === "GET" ? 0 : bytes}` })))

describe("an app that is put to sleep whenever nothing of it is open", () => {
  it.live("answers each request once, whatever the moment at which it came", () =>
    Effect.gen(function* () {
      const guestPort = yield* freePort
      const { port, proxy } = yield* startProxy({ sweep: 20 })
      const deeds: Deeds = { lives: 0, done: new Map() }
      const app = makeApp(guestPort, deeds)
      yield* Effect.addFinalizer(() => app.end)
      const up: UpTarget = { kind: "up", host: "127.0.0.1", port: guestPort }
      const route = { appId, hostnames: ["app.test"] }
      const asleep = (): AsleepTarget => ({
        kind: "asleep",
        wake: Effect.as(app.start, up)
      })
      yield* proxy.setRoute({ ...route, target: asleep() })

      const sleep = Effect.gen(function* () {
        const before = (yield* proxy.traffic).apps.get(appId)
        if (before === undefined || before.open > 0) return false
        yield* proxy.setRoute({ ...route, target: asleep() })
        // what came in between has woken it, or is under way: as a reconciler sees it then
        const now = (yield* proxy.traffic).apps.get(appId)
        if (now === undefined || now.open > now.held) {
          yield* proxy.setRoute({ ...route, target: up })
          return false
        }
        yield* app.end
        yield* proxy.endConnections(appId)
        return true
      })

      const agent = new Agent({ keepAlive: true, maxSockets: 10 })
      yield* Effect.addFinalizer(() => Effect.sync(() => agent.destroy()))
      const running: Array<Fiber.Fiber<{ got: string; expected: string }>> = []
      let slept = 0
      for (const [index, step] of fc.sample(steps, { numRuns: 400 }).entries()) {
        running.push(yield* Effect.forkScoped(ask(agent, port, `r${index}`, step)))
        yield* Effect.sleep(step.pause)
        if (step.sleep && (yield* sleep)) slept++
      }
      for (const fiber of running) {
        const outcome = yield* Fiber.await(fiber)
        assert.isTrue(Exit.isSuccess(outcome))
        if (Exit.isSuccess(outcome)) assert.strictEqual(outcome.value.got, outcome.value.expected)
      }
      yield* eventually(openRequests(proxy), (open) => open === 0)
      assert.isAbove(slept, 0)
      assert.strictEqual(deeds.done.size, 400)
      assert.deepStrictEqual(
        [...deeds.done].filter(([, times]) => times !== 1),
        []
      )
      assert.include((yield* proxy.traffic).outcomes, { served: 400, unreachable: 0, refused: 0 })
    })
  )
})
