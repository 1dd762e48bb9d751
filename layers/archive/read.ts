/** Reads an archive, whatever it is: its content says, not its name. */
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import type { Readable } from "node:stream"
import * as zlib from "node:zlib"
import { type Feed, feed } from "./feed.ts"
import { Refused, type Sink } from "./sink.ts"
import { readTar } from "./tar.ts"
import { BLOCK, looksLikeTar } from "./tar-header.ts"
import { readZip } from "./zip.ts"

const PIECE = 2 ** 18
/** zstd may ask for as much memory as it likes; 32 MiB are what its levels up to 22 without `--long` take, but one. */
const ZSTD_WINDOW_LOG = 26

const starts = (head: Buffer, ...bytes: ReadonlyArray<number>): boolean =>
  bytes.every((byte, index) => head[index] === byte)

/** `limit`: bytes after which no more is read, what is skipped or replaced included. */
export const readArchive = async (path: string, sink: Sink, limit: number): Promise<void> => {
  const file = fs.openSync(path, "r")
  try {
    const head = Buffer.alloc(BLOCK)
    const length = fs.readSync(file, head, 0, BLOCK, 0)
    const start = head.subarray(0, length)
    if (length === 0) throw new Refused("is empty")
    if (
      starts(start, 0x50, 0x4b, 3, 4) ||
      starts(start, 0x50, 0x4b, 5, 6) ||
      starts(start, 0x50, 0x4b, 7, 8)
    ) {
      return await readZip(file, sink, limit)
    }
    const tar = limited(feed(readTar(sink)), limit)
    if (starts(start, 0x1f, 0x8b)) return await inflated(path, zlib.createGunzip({ chunkSize: PIECE }), tar)
    if (starts(start, 0x28, 0xb5, 0x2f, 0xfd)) {
      const params = { [zlib.constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG }
      return await inflated(path, zlib.createZstdDecompress({ chunkSize: PIECE, params }), tar)
    }
    if (starts(start, 0xfd, 0x37, 0x7a, 0x58, 0x5a, 0)) return await byXz(file, tar)
    if (starts(start, 0x42, 0x5a, 0x68))
      throw new Refused("is compressed with bzip2, which is not read: gzip is")
    if (length < BLOCK || !looksLikeTar(start))
      throw new Refused("is neither a tar, plain or gzipped, nor a zip")
    plain(file, tar)
  } finally {
    fs.closeSync(file)
  }
}

/** What is thrown away costs time all the same. */
const limited = (tar: Feed, limit: number): Feed => {
  let read = 0
  return {
    push: (chunk) => {
      read += chunk.length
      if (read > limit) {
        throw new Refused(
          `does not fit: with what is skipped or replaced in it, it has more than ${limit} bytes`
        )
      }
      tar.push(chunk)
    },
    end: tar.end
  }
}

const plain = (file: number, tar: Feed): void => {
  const piece = Buffer.alloc(PIECE)
  for (let place = 0; ; ) {
    const length = fs.readSync(file, piece, 0, PIECE, place)
    if (length === 0) break
    place += length
    tar.push(piece.subarray(0, length))
  }
  tar.end()
}

/** A decompressor's complaint, as a clause. */
const complaint = (error: unknown): Refused => {
  if (error instanceof Refused) return error
  const said = error instanceof Error ? error.message : String(error)
  if (/unexpected end of file/iu.test(said))
    return new Refused("is truncated: its compressed data has no end")
  return new Refused(`is corrupt: it cannot be decompressed (${said.slice(0, 160)})`)
}

const all = async (stream: Readable, tar: Feed): Promise<void> => {
  for await (const piece of stream) tar.push(piece)
}

const inflated = async (
  path: string,
  inflate: zlib.Gunzip | zlib.ZstdDecompress,
  tar: Feed
): Promise<void> => {
  const compressed = fs.createReadStream(path, { highWaterMark: PIECE })
  compressed.on("error", (error) => inflate.destroy(error))
  try {
    await all(compressed.pipe(inflate), tar)
  } catch (error) {
    throw complaint(error)
  } finally {
    compressed.destroy()
    inflate.destroy()
  }
  tar.end()
}

/** Node has no xz: Debian's tool reads it, with at most 100 MiB of memory of its own. */
const byXz = async (file: number, tar: Feed): Promise<void> => {
  const xz = spawn("xz", ["-dc", "-M", "100MiB"], { stdio: [file, "pipe", "pipe"] })
  let said = ""
  xz.stderr?.on("data", (piece) => {
    said = (said + piece).slice(-400)
  })
  const ended = new Promise<number | string>((resolve) => {
    xz.once("error", (error) =>
      resolve(
        "code" in error && error.code === "ENOENT"
          ? "xz is not installed (Debian package xz-utils)"
          : error.message
      )
    )
    xz.once("close", (code) => resolve(code ?? "xz was ended"))
  })
  try {
    if (xz.stdout !== null) await all(xz.stdout, tar)
    const end = await ended
    if (typeof end === "string") throw new Refused(`cannot be decompressed: ${end}`)
    if (end !== 0) throw complaint(said.trim().replace(/^xz: \(stdin\): /u, ""))
  } finally {
    xz.kill("SIGKILL")
  }
  tar.end()
}
