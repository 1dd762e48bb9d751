/**
 * The part of 9P2000.L that the daemon speaks to ZeroFS itself: files of one directory. A mount would put the daemon's own
 * threads at the mercy of a server that is gone; a conversation is just given up.
 */
import { Effect, Schema, type Scope } from "effect"
import { type Conversation, converse, NoAnswer } from "./socket.ts"

/** ZeroFS refused what was asked of a file. `errno` is Linux's. */
export class FileRefused extends Schema.TaggedError<FileRefused>()("FileRefused", {
  path: Schema.String,
  errno: Schema.Int
}) {
  override get message() {
    return `ZeroFS refuses ${this.path}: ${reasons[this.errno] ?? `error ${this.errno}`}`
  }
}

const reasons: Readonly<Record<number, string>> = {
  1: "not permitted",
  2: "it does not exist",
  5: "I/O error, its store cannot be used",
  13: "no permission",
  17: "it exists already",
  28: "no space is left (filesystem.max_size_gb of its configuration)",
  30: "it is read-only",
  36: "its name is too long"
}

export const ENOENT = 2
export const EEXIST = 17

/** Message types; an answer is its question's plus one. */
const LERROR = 6
const LCREATE = 14
const GETATTR = 24
const SETATTR = 26
const READDIR = 40
const FSYNC = 50
const LINK = 70
const UNLINKAT = 76
const LOPEN = 12
const VERSION = 100
const ATTACH = 104
const WALK = 110
const CLUNK = 120

const VERSION_NAME = "9P2000.L"
const NO_TAG = 0xffff
const NO_FID = 0xffffffff
const MESSAGE_SIZE = 65_536
const READ_WRITE = 2
const EXCLUSIVE = 0o200
const SIZE_ONLY = 8
const STATS_BASIC = 0x7ffn
const QID = 13
/** 9P's own type bit of a directory in a qid. */
const QID_DIRECTORY = 0x80

export type Field = readonly ["u16" | "u32", number] | readonly ["u64", bigint] | readonly ["text", string]

/** A message with its length in front. */
export const encodeMessage = (type: number, tag: number, fields: ReadonlyArray<Field>): Buffer => {
  const parts = fields.map(([kind, value]) => {
    if (kind === "text") {
      const text = Buffer.from(value)
      const length = Buffer.alloc(2)
      length.writeUInt16LE(text.length)
      return Buffer.concat([length, text])
    }
    const bytes = Buffer.alloc(kind === "u16" ? 2 : kind === "u32" ? 4 : 8)
    if (kind === "u64") bytes.writeBigUInt64LE(value)
    else bytes.writeUIntLE(value, 0, bytes.length)
    return bytes
  })
  const header = Buffer.alloc(7)
  header.writeUInt32LE(7 + parts.reduce((sum, part) => sum + part.length, 0), 0)
  header.writeUInt8(type, 4)
  header.writeUInt16LE(tag, 5)
  return Buffer.concat([header, ...parts])
}

export interface Entry {
  readonly name: string
  /** Where the listing goes on behind this entry. */
  readonly offset: bigint
  readonly directory: boolean
}

/** The entries of a READDIR's data; undefined where it is cut short. */
export const decodeEntries = (data: Buffer): ReadonlyArray<Entry> | undefined => {
  const entries: Array<Entry> = []
  let at = 0
  while (at < data.length) {
    if (at + QID + 11 > data.length) return undefined
    const length = data.readUInt16LE(at + QID + 9)
    const start = at + QID + 11
    if (start + length > data.length) return undefined
    entries.push({
      name: data.toString("utf8", start, start + length),
      offset: data.readBigUInt64LE(at + QID),
      directory: (data.readUInt8(at) & QID_DIRECTORY) !== 0
    })
    at = start + length
  }
  return entries
}

/** Files of one directory of ZeroFS's, as root. A conversation is used by one fiber. */
export interface Directory {
  /** Bytes; undefined when there is no file of that name. */
  readonly size: (name: string) => Effect.Effect<number | undefined, FileRefused | NoAnswer>
  /** A new file of zeros, private. `EEXIST` when there is one of that name. */
  readonly create: (name: string, bytes: number) => Effect.Effect<void, FileRefused | NoAnswer>
  readonly resize: (name: string, bytes: number) => Effect.Effect<void, FileRefused | NoAnswer>
  /** A second name for a file. `EEXIST` when it is taken. */
  readonly link: (name: string, other: string) => Effect.Effect<void, FileRefused | NoAnswer>
  /** No error when there is none. */
  readonly remove: (name: string) => Effect.Effect<void, FileRefused | NoAnswer>
  /** Names of what is no directory. */
  readonly names: Effect.Effect<ReadonlyArray<string>, FileRefused | NoAnswer>
}

const DIRECTORY_FID = 1

export const openDirectory = (
  socketPath: string,
  directory: string
): Effect.Effect<Directory, FileRefused | NoAnswer, Scope.Scope> =>
  Effect.gen(function* () {
    const talk = yield* converse(socketPath)
    const ask = asking(talk)
    const version = yield* ask(VERSION, "/", [
      ["u32", MESSAGE_SIZE],
      ["text", VERSION_NAME]
    ])
    if (version.length < 6 + VERSION_NAME.length || version.toString("latin1", 6) !== VERSION_NAME)
      return yield* nonsense(talk)
    const maxData = Math.min(version.readUInt32LE(0), MESSAGE_SIZE) - 64
    const root: ReadonlyArray<Field> = [
      ["u32", 0],
      ["u32", NO_FID],
      ["text", "root"],
      ["text", ""],
      ["u32", 0]
    ]
    yield* ask(ATTACH, "/", root)

    const pathOf = (name: string) => `/${directory}/${name}`
    const walk = (path: string, from: number, to: number, names: ReadonlyArray<string>) =>
      ask(WALK, path, [
        ["u32", from],
        ["u32", to],
        ["u16", names.length],
        ...names.map((name): Field => ["text", name])
      ])
    yield* walk(`/${directory}`, 0, DIRECTORY_FID, [directory])

    let fids = DIRECTORY_FID
    /** What a failure leaves open is closed with the conversation: a server that is gone is not waited for. */
    const withFid = <A>(
      path: string,
      names: ReadonlyArray<string>,
      use: (fid: number) => Effect.Effect<A, FileRefused | NoAnswer>
    ) =>
      Effect.suspend(() => {
        fids += 1
        const fid = fids
        return walk(path, DIRECTORY_FID, fid, names).pipe(
          Effect.andThen(use(fid)),
          Effect.tap(() => ask(CLUNK, path, [["u32", fid]]))
        )
      })
    const withFile = <A>(name: string, use: (fid: number) => Effect.Effect<A, FileRefused | NoAnswer>) =>
      withFid(pathOf(name), [name], use)

    const setSize = (fid: number, name: string, bytes: number) =>
      ask(SETATTR, pathOf(name), [
        ["u32", fid],
        ["u32", SIZE_ONLY],
        ...["mode", "uid", "gid"].map((): Field => ["u32", 0]),
        ["u64", BigInt(bytes)],
        ...["atime", "its ns", "mtime", "its ns"].map((): Field => ["u64", 0n])
      ])
    const sync = (fid: number, name: string) =>
      ask(FSYNC, pathOf(name), [
        ["u32", fid],
        ["u32", 0]
      ])
    const sizeIs = (fid: number, name: string) =>
      ask(GETATTR, pathOf(name), [
        ["u32", fid],
        ["u64", STATS_BASIC]
      ]).pipe(
        Effect.flatMap((answer) =>
          // valid, qid, mode, uid, gid, nlink, rdev, size
          answer.length < 57
            ? Effect.fail(nonsense(talk))
            : Effect.succeed(Number(answer.readBigUInt64LE(49)))
        )
      )

    return {
      size: (name) =>
        withFile(name, (fid) => sizeIs(fid, name)).pipe(Effect.catchIf(isMissing, () => Effect.undefined)),
      create: (name, bytes) =>
        withFid(`/${directory}`, [], (fid) =>
          ask(LCREATE, pathOf(name), [
            ["u32", fid],
            ["text", name],
            ["u32", READ_WRITE | EXCLUSIVE],
            ["u32", 0o600],
            ["u32", 0]
          ]).pipe(Effect.andThen(setSize(fid, name, bytes)), Effect.andThen(sync(fid, name)), Effect.asVoid)
        ),
      resize: (name, bytes) => withFile(name, (fid) => Effect.asVoid(setSize(fid, name, bytes))),
      link: (name, other) =>
        withFile(name, (fid) =>
          Effect.asVoid(
            ask(LINK, pathOf(other), [
              ["u32", DIRECTORY_FID],
              ["u32", fid],
              ["text", other]
            ])
          )
        ),
      remove: (name) =>
        ask(UNLINKAT, pathOf(name), [
          ["u32", DIRECTORY_FID],
          ["text", name],
          ["u32", 0]
        ]).pipe(
          Effect.asVoid,
          Effect.catchIf(isMissing, () => Effect.void)
        ),
      names: withFid(`/${directory}`, [], (fid) =>
        Effect.gen(function* () {
          yield* ask(LOPEN, `/${directory}`, [
            ["u32", fid],
            ["u32", 0]
          ])
          const names: Array<string> = []
          let offset = 0n
          while (true) {
            const answer = yield* ask(READDIR, `/${directory}`, [
              ["u32", fid],
              ["u64", offset],
              ["u32", maxData]
            ])
            const entries = answer.length < 4 ? undefined : decodeEntries(answer.subarray(4))
            if (entries === undefined) return yield* nonsense(talk)
            const last = entries.at(-1)
            if (last === undefined) return names
            names.push(...entries.filter((entry) => !entry.directory).map((entry) => entry.name))
            offset = last.offset
          }
        })
      )
    }
  })

const isMissing = (error: FileRefused | NoAnswer): boolean =>
  error._tag === "FileRefused" && error.errno === ENOENT

const nonsense = ({ socketPath }: Conversation) =>
  new NoAnswer({ socketPath, reason: `what answers on ${socketPath} does not speak ${VERSION_NAME}` })

const asking = (talk: Conversation) =>
  Effect.fnUntraced(function* (type: number, path: string, fields: ReadonlyArray<Field>) {
    const tag = type === VERSION ? NO_TAG : 0
    yield* talk.send(encodeMessage(type, tag, fields))
    const header = yield* talk.receive(7)
    const [length, answered] = [header.readUInt32LE(0), header.readUInt8(4)]
    if (length < 7 || length > MESSAGE_SIZE || header.readUInt16LE(5) !== tag) return yield* nonsense(talk)
    const body = yield* talk.receive(length - 7)
    if (answered === LERROR + 1 && body.length >= 4)
      return yield* new FileRefused({ path, errno: body.readUInt32LE(0) })
    return answered === type + 1 ? body : yield* nonsense(talk)
  })
