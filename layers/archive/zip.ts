/** Reads a zip by its central directory. */
import { crc32 } from "node:zlib"
import yauzl from "yauzl"
import { showName } from "../../src/volume/entry-path.ts"
import { type Entry, Refused, type Sink } from "./sink.ts"

const TYPE = 0o170000
const KINDS: ReadonlyMap<number, string> = new Map([
  [0o010000, "a FIFO"],
  [0o020000, "a character device"],
  [0o060000, "a block device"],
  [0o120000, "a symbolic link, which a zip may not have here: a tar may"],
  [0o140000, "a socket"]
])
/** Systems whose archives have Unix modes. */
const UNIX = 3
const MACOS = 19

const METHODS: Readonly<Record<number, string>> = {
  1: "shrink",
  6: "implode",
  9: "Deflate64",
  12: "bzip2",
  14: "LZMA",
  93: "Zstandard",
  95: "xz",
  98: "PPMd"
}

/** The file stays open. `limit`: bytes of content, what is skipped or replaced included. */
export const readZip = async (file: number, sink: Sink, limit: number): Promise<void> => {
  let read = 0
  try {
    const zip = await yauzl.fromFdPromise(file, {
      lazyEntries: true,
      autoClose: false,
      decodeStrings: false,
      validateEntrySizes: true
    })
    for await (const entry of zip.eachEntry()) {
      read += entry.uncompressedSize
      // Many entries may share one content, and one name.
      if (read > limit) {
        throw new Refused(
          `does not fit: with what is skipped or replaced in it, it has more than ${limit} bytes`
        )
      }
      await unpack(zip, entry, sink)
    }
  } catch (error) {
    throw error instanceof Refused ? error : new Refused(reasonOf(error))
  }
}

const reasonOf = (error: unknown): string => {
  const said = error instanceof Error ? error.message : String(error)
  if (/encrypt/iu.test(said)) return "is protected with a password"
  if (/truncated|unexpected EOF|unexpected end of file/iu.test(said))
    return "is truncated: its end is missing"
  return `is corrupt: ${said.slice(0, 160)}`
}

const unpack = async (zip: yauzl.ZipFile, raw: yauzl.Entry, sink: Sink): Promise<void> => {
  const name = nameOf(raw)
  const system = raw.versionMadeBy >> 8
  const mode = system === UNIX || system === MACOS ? raw.externalFileAttributes >>> 16 : 0
  const isDirectory = name.endsWith("/") || (mode & TYPE) === 0o040000
  const entry: Entry = {
    name,
    mode: (mode & 0o7777) !== 0 ? mode & 0o7777 : isDirectory ? 0o755 : 0o644,
    mtime: timeOf(raw)
  }
  const kind = KINDS.get(mode & TYPE)
  if (kind !== undefined) return sink.other(entry, kind)
  if (isDirectory) return sink.directory(entry)
  if (raw.isEncrypted())
    throw new Refused(`is protected with a password: entry ${showName(name)} is encrypted`)
  if (raw.compressionMethod !== 0 && raw.compressionMethod !== 8) {
    const method = METHODS[raw.compressionMethod] ?? `method ${raw.compressionMethod}`
    throw new Refused(
      `has an entry ${showName(name)} that is compressed with ${method}; stored and deflated ones are read`
    )
  }
  const open = sink.file(entry, raw.uncompressedSize, raw.uncompressedSize)
  if (open === undefined) return
  let position = 0
  let sum = 0
  try {
    for await (const piece of await zip.openReadStreamPromise(raw)) {
      open.write(piece, position)
      position += piece.length
      sum = crc32(piece, sum)
    }
  } finally {
    open.close()
  }
  if (sum !== raw.crc32) throw new Refused(`is corrupt: the checksum of entry ${showName(name)} is wrong`)
}

const timeOf = (raw: yauzl.Entry): number => {
  const time = raw.getLastModDate({ timezone: "UTC" }).getTime() / 1000
  return Number.isFinite(time) ? time : 0
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true })

const isUtf8 = (bytes: Buffer): boolean => {
  try {
    strictUtf8.decode(bytes)
    return true
  } catch {
    return false
  }
}

/**
 * The name as bytes of UTF-8. Without a flag it is CP437 by the specification; but tools on Unix write UTF-8 all the
 * same, macOS's own among them. Windows' may have backslashes between the parts.
 */
const nameOf = (raw: yauzl.Entry): string => {
  const system = raw.versionMadeBy >> 8
  const unix = system === UNIX || system === MACOS
  const flags =
    unix && isUtf8(raw.fileNameRaw) ? raw.generalPurposeBitFlag | 0x800 : raw.generalPurposeBitFlag
  const name = yauzl.getFileNameLowLevel(flags, raw.fileNameRaw, raw.extraFields, unix)
  return Buffer.from(name).toString("latin1")
}
