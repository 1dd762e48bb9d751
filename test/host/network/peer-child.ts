/**
 * Another machine: runs in a network namespace of its own, answers on a port of all of its addresses, and does as it is
 * told, a line of JSON each: it connects, asks, sends datagrams. Its own listeners echo and keep count.
 */
import { createSocket, type Socket as Datagrams } from "node:dgram"
import { connect, createServer, type Socket } from "node:net"
import { createInterface } from "node:readline"

const [, , port, ...ADDRESSES] = process.argv
const PORT = Number(port)

interface Command {
  readonly id: number
  readonly op: "connect" | "ask" | "close" | "datagram" | "heard" | "pump"
  readonly name: string
  readonly host: string
  readonly port: number
  readonly text: string
  readonly waitMs: number
  readonly bytes: number
}

const say = (message: unknown) => process.stdout.write(`${JSON.stringify(message)}\n`)
const sockets = new Map<string, Socket>()
const datagrams = new Map<string, Datagrams>()
const heard: Array<string> = []

/** Answers come from the address that was asked: hence a socket for each. */
const echo = (address: string) => {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4")
  socket.on("message", (bytes, from) => {
    heard.push(bytes.toString())
    socket.send(bytes, from.port, from.address)
  })
  return new Promise<void>((resolve) => socket.bind(PORT, address, resolve))
}

createServer((socket) => {
  socket.on("error", () => {})
  socket.pipe(socket)
}).listen(PORT, "::", () => {
  Promise.all(ADDRESSES.map(echo)).then(() => say({ ready: true }))
})

/** The first of what may come of it, within the time. */
const once = (id: number, waitMs: number) => {
  let done = false
  const answer = (result: Record<string, unknown>) => {
    if (done) return
    done = true
    clearTimeout(timer)
    say({ id, ...result })
  }
  const timer = setTimeout(() => answer({ error: "nothing" }), waitMs)
  return answer
}

const commands: Record<Command["op"], (command: Command) => void> = {
  connect: ({ id, name, host, port, waitMs }) => {
    const answer = once(id, waitMs)
    const socket = connect({ host, port })
    sockets.set(name, socket)
    socket.on("connect", () => answer({ text: "connected" }))
    socket.on("error", (error: NodeJS.ErrnoException) => answer({ error: error.code ?? error.message }))
  },
  ask: ({ id, name, text, waitMs }) => {
    const answer = once(id, waitMs)
    const socket = sockets.get(name)
    if (socket === undefined) return answer({ error: "no such connection" })
    socket.once("data", (bytes) => answer({ text: bytes.toString() }))
    socket.once("error", (error: NodeJS.ErrnoException) => answer({ error: error.code ?? error.message }))
    socket.once("close", () => answer({ error: "closed" }))
    socket.write(text)
  },
  close: ({ id, name }) => {
    const socket = sockets.get(name)
    socket?.once("close", () => say({ id, text: "closed" }))
    socket?.destroy()
    sockets.delete(name)
  },
  datagram: ({ id, name, host, port, text, waitMs }) => {
    const answer = once(id, waitMs)
    const socket = datagrams.get(name) ?? createSocket("udp4")
    datagrams.set(name, socket)
    socket.removeAllListeners("message")
    socket.removeAllListeners("error")
    socket.on("error", (error: NodeJS.ErrnoException) => answer({ error: error.code ?? error.message }))
    socket.on("message", (bytes, from) =>
      answer({ text: bytes.toString(), from: `${from.address}:${from.port}` })
    )
    socket.send(text, port, host)
  },
  // Sends so many bytes to an echo and takes them back: the milliseconds from the first to the last.
  pump: ({ id, host, port, bytes, waitMs }) => {
    const answer = once(id, waitMs)
    const piece = Buffer.alloc(65_536, "x")
    const socket = connect({ host, port })
    socket.on("error", (error: NodeJS.ErrnoException) => answer({ error: error.code ?? error.message }))
    socket.on("connect", () => {
      const began = performance.now()
      let back = 0
      let sent = 0
      const send = () => {
        while (sent < bytes && socket.write(piece)) sent += piece.length
      }
      socket.on("drain", () => {
        sent += piece.length
        send()
      })
      socket.on("data", ({ length }) => {
        back += length
        if (back < bytes) return
        answer({ text: String(performance.now() - began) })
        socket.destroy()
      })
      send()
    })
  },
  heard: ({ id }) => say({ id, text: heard.join("\n") })
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const command = JSON.parse(line) as Command
    commands[command.op](command)
  })
  .on("close", () => process.exit(0))
