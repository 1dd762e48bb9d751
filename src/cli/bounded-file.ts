/** Reading a file that somebody has named, which may be anything: never more of it than a host's files can have. */
import { Effect, FileSystem, Schema } from "effect"
import { MAX_DOCUMENT_BYTES } from "../document/text.ts"

/** Nothing was read. `reason` is a clause for a sentence that names the file. */
export class FileNotRead extends Schema.TaggedError<FileNotRead>()("FileNotRead", {
  reason: Schema.String,
  /** There is no such file. */
  missing: Schema.Boolean
}) {
  override get message() {
    return this.reason
  }
}

const notRead = (reason: string) => new FileNotRead({ reason, missing: false })

/** All bytes of a file or a pipe. A file of more than `MAX_DOCUMENT_BYTES` is refused unread, as is a device: it has no end. */
export const readBounded = Effect.fnUntraced(
  function* (file: string) {
    const files = yield* FileSystem.FileSystem
    const { size, type } = yield* files.stat(file)
    if (type === "Directory") return yield* notRead("it is a directory")
    if (type === "CharacterDevice" || type === "BlockDevice")
      return yield* notRead("it is a device, and no file")
    if (type === "File" && size > MAX_DOCUMENT_BYTES)
      return yield* notRead(`it has ${size} bytes, and at most ${MAX_DOCUMENT_BYTES} are read`)
    return yield* files.readFile(file)
  },
  Effect.mapError((error) => {
    if (error._tag === "FileNotRead") return error
    switch (error.reason._tag) {
      case "NotFound":
        return new FileNotRead({ reason: "there is no such file", missing: true })
      case "PermissionDenied":
        return notRead("this user may not read it")
      default:
        return notRead(error.message)
    }
  })
)

/** The same as text: what is no UTF-8 becomes U+FFFD. */
export const readBoundedText = (file: string) =>
  Effect.map(readBounded(file), (bytes) => new TextDecoder().decode(bytes))
