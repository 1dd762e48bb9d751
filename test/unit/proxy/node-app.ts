/** An app as people write them: on Node's own server, with the `ws` package. */
import { createHash } from "node:crypto"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { Effect } from "effect"
import { WebSocketServer } from "ws"

/** What it serves under /file, whole or in ranges. */
export const FILE = Buffer.from(Array.from({ length: 1_000_000 }, (_, index) => (index * 31) % 251))

export const sha256 = (bytes: Buffer | string) => createHash("sha256").update(bytes).digest("hex")

const answer = (request: IncomingMessage, response: ServerResponse) => {
  const hash = createHash("sha256")
  let bytes = 0
  request.on("data", (piece: Buffer) => {
    bytes += piece.length
    hash.update(piece)
  })
  request.on("end", () => {
    const range = /^bytes=(\d+)-(\d+)$/u.exec(request.headers.range ?? "")
    if (request.url === "/file" && range !== null) {
      const [from, to] = [Number(range[1]), Number(range[2])]
      response.writeHead(206, { "content-range": `bytes ${from}-${to}/${FILE.length}` })
      response.end(FILE.subarray(from, to + 1))
    } else if (request.url === "/file") response.end(FILE)
    else if (request.url === "/trailers") {
      response.writeHead(200, { trailer: "x-sum" })
      response.write("body")
      response.addTrailers({ "x-sum": "5" })
      response.end()
    } else {
      const { method, url, headers, httpVersion } = request
      response.writeHead(200, { "content-type": "application/json" })
      response.end(JSON.stringify({ method, url, headers, httpVersion, bytes, sha256: hash.digest("hex") }))
    }
  })
}

/** Serves until the scope closes; gives the port. Its WebSockets send back what they get. */
export const nodeApp = Effect.acquireRelease(
  Effect.callback<{ readonly port: number; readonly close: () => void }>((resume) => {
    const server = createServer(answer)
    const sockets = new WebSocketServer({ server })
    sockets.on("connection", (socket) => {
      socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }))
    })
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      resume(
        Effect.succeed({
          port: typeof address === "object" && address !== null ? address.port : 0,
          close: () => {
            for (const socket of sockets.clients) socket.terminate()
            server.close()
            server.closeAllConnections()
          }
        })
      )
    })
  }),
  ({ close }) => Effect.sync(close)
)
