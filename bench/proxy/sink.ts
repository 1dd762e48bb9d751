/** An app that reads every upload to its end and then answers: `sink.ts PORT`. It does nothing else, to be fast. */
import { createServer, Socket } from "node:net"

const [port] = process.argv.slice(2)
const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
const buffer = Buffer.alloc(1_048_576)

createServer({ pauseOnConnect: true, noDelay: true }, (accepted) => {
  let left = 0
  const holder = accepted as unknown as { _handle: unknown }
  const handle = holder._handle
  holder._handle = null
  accepted.destroy()
  const socket: Socket = new Socket({
    handle,
    onread: {
      buffer,
      callback: (length: number) => {
        if (left > 0) left -= length
        else {
          const head = buffer.toString("latin1", 0, length)
          const end = head.indexOf("\r\n\r\n") + 4
          const size = /\r\ncontent-length: (\d+)/iu.exec(head)?.[1]
          if (end < 4 || size === undefined) throw new Error(`no upload that this can read: ${head}`)
          left = Number(size) - (length - end)
        }
        if (left <= 0) socket.write(answer)
        return true
      }
    }
  } as ConstructorParameters<typeof Socket>[0])
  socket.on("error", () => socket.destroy())
}).listen(Number(port), "127.0.0.1")
