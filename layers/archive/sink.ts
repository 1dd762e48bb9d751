/** What a reader of archives gives, entry by entry, and what takes it. Names are strings of bytes. */

/** The archive is not unpacked. `message` is a clause that follows its name: `is truncated`. */
export class Refused extends Error {}

export interface Entry {
  readonly name: string
  /** Permission bits, set-id and sticky included. */
  readonly mode: number
  /** Seconds since 1970. */
  readonly mtime: number
  /** Extended attributes, all that the archive has. */
  readonly attributes?: ReadonlyMap<string, Buffer>
}

/** A file that is being filled. */
export interface OpenFile {
  readonly write: (bytes: Buffer, position: number) => void
  readonly close: () => void
}

export interface Sink {
  readonly directory: (entry: Entry) => void
  readonly symbolicLink: (entry: Entry, target: string) => void
  readonly hardLink: (entry: Entry, target: string) => void
  readonly characterDevice: (entry: Entry, major: number, minor: number) => void
  /** An entry of a kind that is never unpacked: `a FIFO`. */
  readonly other: (entry: Entry, kind: string) => void
  /**
   * A file of `size` bytes, of which `stored` are written and the rest is a hole. Gives nothing when the content
   * is to be passed over.
   */
  readonly file: (entry: Entry, size: number, stored: number) => OpenFile | undefined
}
