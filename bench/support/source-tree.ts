/** A tree of files as a source tree is, the same in every run. */
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"

/** Numbers that are the same in every run. */
const numbers = (seed: number) => {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

/**
 * Makes a source tree: directories five deep, most files of some KiB, a few of some hundred. Gives the number of files.
 *
 * @param treeBytes of all files together, about
 */
export const plantSourceTree = (root: string, treeBytes: number): number => {
  const next = numbers(1)
  const text = Buffer.from(
    Array.from({ length: 60_000 }, (_, line) => `const value${line} = compute(${line})\n`).join("")
  )
  let files = 0
  for (let bytes = 0; bytes < treeBytes; files += 1) {
    const depth = 1 + Math.floor(next() * 5)
    const directory = join(root, ...Array.from({ length: depth }, () => `part-${Math.floor(next() * 8)}`))
    const size = Math.ceil(200 * 2 ** (next() * next() * 11 + next() * 3))
    const start = Math.floor(next() * (text.length - size))
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, `module-${files}.ts`), text.subarray(start, start + size))
    bytes += size
  }
  return files
}
