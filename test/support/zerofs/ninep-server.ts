/** A 9P2000.L server for the files below a directory: of the protocol as much as a host asks of ZeroFS. */
import * as fs from "node:fs"
import { createServer, type Socket } from "node:net"
import * as path from "node:path"

const ERRNO: Readonly<Record<string, number>> = { ENOENT: 2, EIO: 5, EEXIST: 17, ENOTDIR: 20, EINVAL: 22 }
const DIRECTORY = 0x80

class Refused extends Error {
  readonly code: string
  constructor(code: string) {
    super(code)
    this.code = code
  }
}

const qid = (stat: fs.Stats) => {
  const bytes = Buffer.alloc(13)
  bytes.writeUInt8(stat.isDirectory() ? DIRECTORY : 0, 0)
  bytes.writeBigUInt64LE(BigInt(stat.ino), 5)
  return bytes
}

const u32 = (value: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32LE(value)
  return bytes
}

const u64 = (value: number) => {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(BigInt(value))
  return bytes
}

const text = (value: string) => {
  const name = Buffer.from(value)
  const length = Buffer.alloc(2)
  length.writeUInt16LE(name.length)
  return Buffer.concat([length, name])
}

class Reader {
  readonly #bytes: Buffer
  #at = 0
  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }
  #take(length: number) {
    this.#at += length
    return this.#at - length
  }
  u16 = () => this.#bytes.readUInt16LE(this.#take(2))
  u32 = () => this.#bytes.readUInt32LE(this.#take(4))
  u64 = () => Number(this.#bytes.readBigUInt64LE(this.#take(8)))
  text = () => {
    const length = this.u16()
    const start = this.#take(length)
    return this.#bytes.toString("utf8", start, start + length)
  }
}

type Handler = (request: Reader, fids: Map<number, string>) => Buffer

/** By the type of the question. Paths are absolute on this host. */
const handlers = (root: string): Readonly<Record<number, Handler>> => {
  const at = (fids: Map<number, string>, fid: number) => {
    const found = fids.get(fid)
    if (found === undefined) throw new Refused("EINVAL")
    return found
  }
  const child = (directory: string, name: string) => {
    if (name === "" || name.includes("/") || name === "..") throw new Refused("EINVAL")
    return path.join(directory, name)
  }
  return {
    100: (request) => Buffer.concat([u32(request.u32()), text("9P2000.L")]),
    104: (request, fids) => {
      fids.set(request.u32(), root)
      return qid(fs.statSync(root))
    },
    110: (request, fids) => {
      let where = at(fids, request.u32())
      const [to, count] = [request.u32(), request.u16()]
      const qids: Array<Buffer> = []
      for (let i = 0; i < count; i++) {
        where = child(where, request.text())
        qids.push(qid(fs.statSync(where)))
      }
      fids.set(to, where)
      const length = Buffer.alloc(2)
      length.writeUInt16LE(count)
      return Buffer.concat([length, ...qids])
    },
    12: (request, fids) => Buffer.concat([qid(fs.statSync(at(fids, request.u32()))), u32(0)]),
    14: (request, fids) => {
      const fid = request.u32()
      const file = child(at(fids, fid), request.text())
      const exclusive = (request.u32() & fs.constants.O_EXCL) !== 0
      fs.closeSync(fs.openSync(file, exclusive ? "wx" : "a", 0o600))
      fids.set(fid, file)
      return Buffer.concat([qid(fs.statSync(file)), u32(0)])
    },
    24: (request, fids) => {
      const stat = fs.statSync(at(fids, request.u32()))
      const ids = [stat.mode, stat.uid, stat.gid].map(u32)
      const numbers = [stat.nlink, 0, stat.size, 4096, stat.blocks].map(u64)
      return Buffer.concat([u64(0x7ff), qid(stat), ...ids, ...numbers, Buffer.alloc(80)])
    },
    26: (request, fids) => {
      const file = at(fids, request.u32())
      const valid = request.u32()
      for (let i = 0; i < 3; i++) request.u32()
      if ((valid & 8) !== 0) fs.truncateSync(file, request.u64())
      return Buffer.alloc(0)
    },
    40: (request, fids) => {
      const directory = at(fids, request.u32())
      const [offset, room] = [request.u64(), request.u32()]
      const entries: Array<Buffer> = []
      let size = 0
      for (const [index, name] of fs.readdirSync(directory).sort().entries()) {
        if (index < offset) continue
        const stat = fs.statSync(path.join(directory, name))
        const entry = Buffer.concat([qid(stat), u64(index + 1), Buffer.from([0]), text(name)])
        size += entry.length
        if (size > room) break
        entries.push(entry)
      }
      const data = Buffer.concat(entries)
      return Buffer.concat([u32(data.length), data])
    },
    50: () => Buffer.alloc(0),
    70: (request, fids) => {
      const directory = at(fids, request.u32())
      fs.linkSync(at(fids, request.u32()), child(directory, request.text()))
      return Buffer.alloc(0)
    },
    76: (request, fids) => {
      fs.unlinkSync(child(at(fids, request.u32()), request.text()))
      return Buffer.alloc(0)
    },
    120: (request, fids) => {
      fids.delete(request.u32())
      return Buffer.alloc(0)
    }
  }
}

const serve = (socket: Socket, table: Readonly<Record<number, Handler>>, broken: () => boolean) => {
  const fids = new Map<number, string>()
  let pending = Buffer.alloc(0)
  socket.on("error", () => undefined)
  socket.on("data", (chunk) => {
    pending = Buffer.concat([pending, chunk])
    while (pending.length >= 7 && pending.length >= pending.readUInt32LE(0)) {
      const message = pending.subarray(0, pending.readUInt32LE(0))
      pending = pending.subarray(message.length)
      const type = message.readUInt8(4)
      let answer: readonly [number, Buffer]
      try {
        if (broken() && type !== 100) throw new Refused("EIO")
        const handler = table[type]
        if (handler === undefined) throw new Refused("EINVAL")
        answer = [type + 1, handler(new Reader(message.subarray(7)), fids)]
      } catch (error) {
        answer = [7, u32(ERRNO[(error as NodeJS.ErrnoException).code ?? ""] ?? 22)]
      }
      const header = Buffer.alloc(7)
      header.writeUInt32LE(7 + answer[1].length)
      header.writeUInt8(answer[0], 4)
      header.writeUInt16LE(message.readUInt16LE(5), 5)
      socket.write(Buffer.concat([header, answer[1]]))
    }
  })
}

/** Serves `root` on a unix socket, whose older socket goes. While it is `broken` every file gives an I/O error. */
export const serveFiles = (socketPath: string, root: string, broken: () => boolean): void => {
  fs.rmSync(socketPath, { force: true })
  createServer((socket) => serve(socket, handlers(root), broken)).listen(socketPath)
}
