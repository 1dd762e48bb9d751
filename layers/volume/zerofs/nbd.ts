/** The part of the NBD protocol that the daemon speaks itself: asking for an export, reading a little, flushing. */
import { Effect, Schema, type Scope } from "effect"
import { type Conversation, converse, NoAnswer } from "./socket.ts"

/** The server knows no export of that name. */
export class NoExport extends Schema.TaggedError<NoExport>()("NoExport", { exportName: Schema.String }) {
  override get message() {
    return `ZeroFS has no export ${this.exportName}`
  }
}

/** The server answered a request with an error. */
export class NbdFailure extends Schema.TaggedError<NbdFailure>()("NbdFailure", {
  request: Schema.String,
  code: Schema.Int
}) {
  override get message() {
    return `ZeroFS cannot ${this.request} (${errors[this.code] ?? `NBD error ${this.code}`})`
  }
}

const errors: Readonly<Record<number, string>> = {
  1: "not permitted",
  5: "I/O error",
  12: "no memory",
  22: "invalid request",
  28: "no space",
  108: "it is shutting down"
}

const NBD_MAGIC = 0x4e42444d41474943n
const OPTION_MAGIC = 0x49484156454f5054n
const REPLY_MAGIC = 0x0003e889045565a9n
const REQUEST_MAGIC = 0x25609513
const SIMPLE_REPLY_MAGIC = 0x67446698
const FIXED_NEWSTYLE = 1
const NO_ZEROES = 2
const OPTION_GO = 7
const REPLY_ACK = 1
const REPLY_INFO = 3
const REPLY_ERROR = 0x80000000
const REPLY_UNKNOWN = 0x80000006
const INFO_EXPORT = 0
const READ = 0
const DISCONNECT = 2
const FLUSH = 3
const MAX_REPLY = 65_536

/** An export that is open. */
export interface OpenExport {
  /** Bytes. */
  readonly size: number
  readonly readOnly: boolean
  readonly read: (offset: number, length: number) => Effect.Effect<Buffer, NbdFailure | NoAnswer>
  /** What was written before is where ZeroFS keeps it, through whichever connection it came. */
  readonly flush: Effect.Effect<void, NbdFailure | NoAnswer>
}

/** `OPTION_GO` for an export, with no questions about it. */
export const goOption = (exportName: string): Buffer => {
  const name = Buffer.from(exportName)
  const bytes = Buffer.alloc(16 + 4 + name.length + 2)
  bytes.writeBigUInt64BE(OPTION_MAGIC, 0)
  bytes.writeUInt32BE(OPTION_GO, 8)
  bytes.writeUInt32BE(bytes.length - 16, 12)
  bytes.writeUInt32BE(name.length, 16)
  name.copy(bytes, 20)
  return bytes
}

export const request = (type: number, cookie: bigint, offset: number, length: number): Buffer => {
  const bytes = Buffer.alloc(28)
  bytes.writeUInt32BE(REQUEST_MAGIC, 0)
  bytes.writeUInt16BE(type, 6)
  bytes.writeBigUInt64BE(cookie, 8)
  bytes.writeBigUInt64BE(BigInt(offset), 16)
  bytes.writeUInt32BE(length, 24)
  return bytes
}

const nonsense = ({ socketPath }: Conversation) =>
  new NoAnswer({ socketPath, reason: `what answers on ${socketPath} does not speak NBD` })

const negotiate = Effect.fnUntraced(function* (talk: Conversation, exportName: string) {
  const greeting = yield* talk.receive(18)
  const offered = greeting.readUInt16BE(16)
  const speaks =
    greeting.readBigUInt64BE(0) === NBD_MAGIC &&
    greeting.readBigUInt64BE(8) === OPTION_MAGIC &&
    (offered & FIXED_NEWSTYLE) !== 0
  if (!speaks) return yield* nonsense(talk)
  const flags = Buffer.alloc(4)
  flags.writeUInt32BE(offered & (FIXED_NEWSTYLE | NO_ZEROES))
  yield* talk.send(Buffer.concat([flags, goOption(exportName)]))

  let found: { size: number; readOnly: boolean } | undefined
  while (true) {
    const header = yield* talk.receive(20)
    const [type, length] = [header.readUInt32BE(12), header.readUInt32BE(16)]
    if (
      header.readBigUInt64BE(0) !== REPLY_MAGIC ||
      header.readUInt32BE(8) !== OPTION_GO ||
      length > MAX_REPLY
    )
      return yield* nonsense(talk)
    const data = yield* talk.receive(length)
    if (type === REPLY_INFO && length >= 12 && data.readUInt16BE(0) === INFO_EXPORT) {
      found = { size: Number(data.readBigUInt64BE(2)), readOnly: (data.readUInt16BE(10) & 2) !== 0 }
    } else if (type === REPLY_ACK) {
      return found ?? (yield* nonsense(talk))
    } else if (type === REPLY_UNKNOWN) {
      return yield* new NoExport({ exportName })
    } else if (type >= REPLY_ERROR) {
      return yield* new NbdFailure({ request: `open export ${exportName}`, code: type - REPLY_ERROR })
    }
  }
})

/** Opens an export for as long as the scope lasts. It may be open elsewhere too. */
export const openExport = (
  socketPath: string,
  exportName: string
): Effect.Effect<OpenExport, NoExport | NbdFailure | NoAnswer, Scope.Scope> =>
  Effect.gen(function* () {
    const talk = yield* converse(socketPath)
    const { size, readOnly } = yield* negotiate(talk, exportName)
    let cookie = 0n

    const ask = Effect.fnUntraced(function* (what: string, type: number, offset: number, length: number) {
      cookie += 1n
      const asked = cookie
      yield* talk.send(request(type, asked, offset, length))
      const header = yield* talk.receive(16)
      if (header.readUInt32BE(0) !== SIMPLE_REPLY_MAGIC || header.readBigUInt64BE(8) !== asked)
        return yield* nonsense(talk)
      const code = header.readUInt32BE(4)
      if (code !== 0) return yield* new NbdFailure({ request: what, code })
      return yield* talk.receive(type === READ ? length : 0)
    })

    yield* Effect.addFinalizer(() => talk.send(request(DISCONNECT, 0n, 0, 0)))
    return {
      size,
      readOnly,
      read: (offset, length) => ask(`read ${exportName}`, READ, offset, length),
      flush: Effect.asVoid(ask(`write ${exportName} to its store`, FLUSH, 0, 0))
    }
  })
