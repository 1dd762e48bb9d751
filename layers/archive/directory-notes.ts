/**
 * Modes and times of directories, which can only be set once they are full. They wait in a file: an archive may have
 * more of them than should be held in memory.
 */
import * as fs from "node:fs"

const PIECE = 2 ** 16

export class DirectoryNotes {
  readonly #file: number
  #waiting: Array<string> = []
  #characters = 0

  constructor(path: string) {
    this.#file = fs.openSync(path, "wx+", 0o600)
  }

  /** The path is a string of bytes. */
  add(path: string, mode: number, mtime: number): void {
    const note = `${mode} ${mtime} ${path}\0`
    this.#waiting.push(note)
    this.#characters += note.length
    if (this.#characters >= PIECE) this.#flush()
  }

  #flush(): void {
    const bytes = Buffer.from(this.#waiting.join(""), "latin1")
    for (let done = 0; done < bytes.length; ) done += fs.writeSync(this.#file, bytes, done)
    this.#waiting = []
    this.#characters = 0
  }

  /** Gives each note in the order in which they came, and closes the file. */
  apply(set: (path: string, mode: number, mtime: number) => void): void {
    this.#flush()
    const piece = Buffer.alloc(PIECE)
    let rest = ""
    for (let place = 0; ; ) {
      const length = fs.readSync(this.#file, piece, 0, PIECE, place)
      if (length === 0) break
      place += length
      const notes = (rest + piece.toString("latin1", 0, length)).split("\0")
      rest = notes.pop() ?? ""
      for (const note of notes) {
        const [mode = "", mtime = ""] = note.split(" ", 2)
        set(note.slice(mode.length + mtime.length + 2), Number(mode), Number(mtime))
      }
    }
    fs.closeSync(this.#file)
  }
}
