/** HTTP probes by `node:http`: a connection of its own for each, and no more of the answer than its status. */
import { request } from "node:http"
import { Effect, Layer } from "effect"
import { HealthProber, type HttpProbe, type ProbeResult } from "../../src/services/HealthProber.ts"

/** The path as a request line may carry it: what is not printable ASCII is percent-encoded as UTF-8. */
export const requestTarget = (path: string): string =>
  path.replace(/[^!-~]+/gu, (part) =>
    Array.from(
      new TextEncoder().encode(part),
      (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`
    ).join("")
  )

const failure = (error: NodeJS.ErrnoException): ProbeResult => {
  if (error.code === "ECONNREFUSED") return { kind: "refused" }
  if (error.code === "ECONNRESET" || error.code === "EPIPE") {
    return { kind: "failed", reason: "the connection was closed before an answer" }
  }
  if (error.code?.startsWith("HPE_")) return { kind: "failed", reason: "what it answered is not HTTP" }
  return { kind: "failed", reason: error.code ?? error.message }
}

const exchange = (probe: HttpProbe): Effect.Effect<ProbeResult> =>
  Effect.callback((resume) => {
    const attempt = request({
      host: probe.host,
      port: probe.port,
      path: requestTarget(probe.path),
      method: "GET",
      agent: false,
      headers: { "user-agent": "nibrunner-health", accept: "*/*", connection: "close" },
      maxHeaderSize: 64 * 1024
    })
    const answered = (status: number | undefined) => {
      attempt.destroy()
      resume(Effect.succeed({ kind: "answered", status: status ?? 0 }))
    }
    attempt.once("response", (response) => {
      response.on("error", () => undefined)
      answered(response.statusCode)
    })
    attempt.once("upgrade", (response, socket) => {
      socket.destroy()
      answered(response.statusCode)
    })
    attempt.on("error", (error) => resume(Effect.succeed(failure(error))))
    attempt.end()
    return Effect.sync(() => attempt.destroy())
  })

export const layerHttpProber: Layer.Layer<HealthProber> = Layer.succeed(HealthProber, {
  http: (probe) =>
    exchange(probe).pipe(
      Effect.timeoutOrElse({
        duration: probe.timeoutMs,
        orElse: () => Effect.succeed<ProbeResult>({ kind: "timed-out", ms: probe.timeoutMs })
      })
    )
})
