/**
 * What is set on the finished filesystem by `debugfs`, since the host's own may not take it: extended attributes, and
 * without root the modes of files that the daemon could not read itself.
 */
import * as fs from "node:fs"
import { showName } from "../../src/volume/entry-path.ts"
import { Refused } from "./sink.ts"

/** Bytes of commands and values. */
const MOST = 16 * 2 ** 20
/** Bytes. `debugfs` reads a command into a buffer of 8 KiB. */
const LONGEST_COMMAND = 8000

export class Fixes {
  readonly #script: string
  readonly #values: string
  readonly #modes = new Map<string, number>()
  readonly #attributes = new Map<string, Map<string, Buffer>>()
  #size = 0

  /** The script that is written, and the directory for the values that it names. */
  constructor(script: string, values: string) {
    this.#script = script
    this.#values = values
  }

  #grow(path: string, bytes: number): void {
    if (path.includes("\n")) {
      throw new Refused(
        `has extended attributes, or a mode that takes root to unpack, at ${showName(path)}, whose name has a line break`
      )
    }
    this.#size += path.length + bytes
    if (this.#size > MOST) throw new Refused(`has more than ${MOST} bytes of extended attributes`)
  }

  /** Type and permission bits. */
  setMode(path: string, mode: number): void {
    this.#grow(path, 8)
    this.#modes.set(path, mode)
  }

  setAttribute(path: string, name: string, value: Buffer): void {
    if (!/^[\x21\x23-\x7e]{1,255}$/u.test(name)) {
      throw new Refused(`has an extended attribute with the name ${showName(name)} at ${showName(path)}`)
    }
    this.#grow(path, name.length + value.length)
    const there = this.#attributes.get(path) ?? new Map<string, Buffer>()
    this.#attributes.set(path, there.set(name, value))
  }

  /** The file at the path is another one from now on. */
  forget(path: string): void {
    this.#modes.delete(path)
    this.#attributes.delete(path)
  }

  /** Writes the script; none when there is nothing to fix. */
  write(): void {
    const commands: Array<string> = []
    for (const [path, mode] of this.#modes) commands.push(`sif ${quoted(path)} mode 0${mode.toString(8)}`)
    if (this.#attributes.size > 0) fs.mkdirSync(this.#values, 0o700)
    let values = 0
    for (const [path, attributes] of this.#attributes) {
      for (const [name, value] of attributes) {
        values += 1
        fs.writeFileSync(`${this.#values}/${values}`, value, { mode: 0o600, flag: "wx" })
        commands.push(`ea_set -f ${quoted(`${this.#values}/${values}`)} ${quoted(path)} ${name}`)
      }
    }
    const long = commands.find((command) => command.length > LONGEST_COMMAND)
    if (long !== undefined)
      throw new Refused("has extended attributes at a path that is too long for debugfs")
    if (commands.length > 0)
      fs.writeFileSync(this.#script, Buffer.from(`${commands.join("\n")}\n`, "latin1"), {
        mode: 0o600,
        flag: "wx"
      })
  }
}

const quoted = (path: string): string => `"${path.replaceAll('"', '""')}"`
