/** What stands between a store and the S3 server in a test: it forwards, and does to single requests what the test says. */
import * as http from "node:http"
import { Effect } from "effect"

export interface FrontRequest {
  readonly method: string
  /** Path and query. */
  readonly url: string
  readonly headers: http.IncomingHttpHeaders
  /** Of all requests so far, from 0. */
  readonly index: number
}

/** What becomes of a request. */
export type Verdict =
  | { readonly kind: "forward" }
  /** The connection ends before an answer. */
  | { readonly kind: "drop" }
  /** Forwarded, but the connection ends when so many bytes of the answer's body have passed. */
  | { readonly kind: "cut"; readonly afterBytes: number }
  /** The body, changed; its length stays what the server says. */
  | { readonly kind: "change"; readonly change: (piece: Buffer) => Buffer }
  /** Taken, and never answered. */
  | { readonly kind: "hold" }
  /** Forwarded and carried out, but the answer never comes. */
  | { readonly kind: "swallow" }
  | {
      readonly kind: "answer"
      readonly status: number
      readonly body?: string | Uint8Array
      readonly headers?: Readonly<Record<string, string>>
    }

export const forward: Verdict = { kind: "forward" }

/** An error as S3 writes it. */
export const s3Error = (
  status: number,
  code: string,
  more: Readonly<Record<string, string>> = {},
  headers: Readonly<Record<string, string>> = {}
): Verdict => ({
  kind: "answer",
  status,
  headers: { "content-type": "application/xml", ...headers },
  body: `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>This is ${code}</Message>${Object.entries(
    more
  )
    .map(([name, value]) => `<${name}>${value}</${name}>`)
    .join("")}<RequestId>1</RequestId></Error>`
})

export interface Front {
  readonly port: number
  readonly requests: Array<FrontRequest>
  /** Decides on each request from now on. */
  rule: (request: FrontRequest) => Verdict
}

/** Starts one before the server at `port`; closed with the scope. */
export const startFront = (port: number) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<{ readonly front: Front; readonly server: http.Server }>((resume) => {
        const requests: Array<FrontRequest> = []
        const server = http.createServer((incoming, outgoing) => {
          const { headers, method = "", url = "" } = incoming
          const request: FrontRequest = { method, url, headers, index: requests.length }
          requests.push(request)
          serve(port, front.rule(request), incoming, outgoing)
        })
        const front: Front & { port: number } = { port: 0, requests, rule: () => forward }
        server.listen(0, "127.0.0.1", () => {
          const address = server.address()
          if (typeof address === "object" && address !== null) front.port = address.port
          resume(Effect.succeed({ front, server }))
        })
      }),
      ({ server }) =>
        Effect.callback<void>((resume) => {
          server.close(() => resume(Effect.void))
          server.closeAllConnections()
        })
    ),
    ({ front }) => front
  )

const serve = (
  port: number,
  verdict: Verdict,
  incoming: http.IncomingMessage,
  outgoing: http.ServerResponse
): void => {
  if (verdict.kind === "drop") {
    incoming.socket.destroy()
    return
  }
  if (verdict.kind === "answer") {
    incoming.resume().once("end", () => {
      outgoing.writeHead(verdict.status, verdict.headers)
      outgoing.end(verdict.body)
    })
    return
  }
  if (verdict.kind === "hold") {
    incoming.resume()
    return
  }
  const { headers, method, url } = incoming
  const onward = http.request(
    { host: "127.0.0.1", port, method, path: url, headers, agent: false },
    (answer) => {
      if (verdict.kind === "swallow") {
        answer.resume().once("end", () => incoming.socket.destroy())
        return
      }
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
      let passed = 0
      answer.on("data", (piece: Buffer) => {
        if (verdict.kind === "cut" && passed + piece.length > verdict.afterBytes) {
          outgoing.write(piece.subarray(0, verdict.afterBytes - passed), () => incoming.socket.destroy())
          answer.destroy()
          return
        }
        passed += piece.length
        if (!outgoing.write(verdict.kind === "change" ? verdict.change(piece) : piece)) {
          answer.pause()
          outgoing.once("drain", () => answer.resume())
        }
      })
      answer.once("end", () => outgoing.end())
      answer.once("error", () => incoming.socket.destroy())
    }
  )
  onward.once("error", () => incoming.socket.destroy())
  outgoing.once("close", () => onward.destroy())
  incoming.pipe(onward)
}
