/** The `newc` archive that the kernel unpacks as its first root, the same bytes for the same entries. */

export interface CpioEntry {
  readonly path: string
  readonly mode: number
  readonly bytes: Uint8Array
  /** Of a character device. */
  readonly device?: { readonly major: number; readonly minor: number }
}

const DIRECTORY = 0o040755
const FILE = 0o100000
const CHARACTER_DEVICE = 0o020000

export const directory = (path: string): CpioEntry => ({ path, mode: DIRECTORY, bytes: new Uint8Array(0) })
export const file = (path: string, permissions: number, bytes: Uint8Array): CpioEntry => ({
  path,
  mode: FILE | permissions,
  bytes
})
export const characterDevice = (
  path: string,
  permissions: number,
  major: number,
  minor: number
): CpioEntry => ({
  path,
  mode: CHARACTER_DEVICE | permissions,
  bytes: new Uint8Array(0),
  device: { major, minor }
})

const padding = (length: number) => new Uint8Array((4 - (length % 4)) % 4)

const record = (entry: CpioEntry, inode: number): ReadonlyArray<Uint8Array> => {
  const name = Buffer.from(`${entry.path}\0`)
  const fields = [
    inode,
    entry.mode,
    0,
    0,
    1,
    0,
    entry.bytes.length,
    0,
    0,
    entry.device?.major ?? 0,
    entry.device?.minor ?? 0,
    name.length,
    0
  ]
  const header = Buffer.from(
    `070701${fields.map((field) => field.toString(16).padStart(8, "0")).join("")}`,
    "ascii"
  )
  return [header, name, padding(header.length + name.length), entry.bytes, padding(entry.bytes.length)]
}

/** Parents stand before what they hold, as the kernel makes no directory by itself. */
export const newcArchive = (entries: ReadonlyArray<CpioEntry>): Uint8Array =>
  Buffer.concat([
    ...entries.flatMap((entry, index) => record(entry, index + 1)),
    ...record({ path: "TRAILER!!!", mode: 0, bytes: new Uint8Array(0) }, 0)
  ])
