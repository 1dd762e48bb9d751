/** Bytes of a stranger in a record towards the guest, where sixteen 0xFF in a row would be a reset. */
import { RESET_BYTES } from "./records.ts"

const FILL = 0xff
const LONGEST_RUN = RESET_BYTES - 1

/** Where the runs of `LONGEST_RUN` bytes 0xFF end; with `stuffed`, the byte behind each is no part of the next. */
const endsOfRuns = (bytes: Uint8Array, stuffed: boolean): ReadonlyArray<number> => {
  const ends: Array<number> = []
  let run = 0
  for (let at = bytes.indexOf(FILL); at !== -1; ) {
    let end = at
    while (end < bytes.length && bytes[end] === FILL && run < LONGEST_RUN) {
      end++
      run++
    }
    if (run === LONGEST_RUN) {
      ends.push(end)
      if (stuffed) end++
    }
    run = 0
    at = bytes.indexOf(FILL, end)
  }
  return ends
}

/** The bytes with a 0x00 behind every 15 bytes 0xFF in a row; the same array where there is no such run. */
export const withoutResets = (bytes: Uint8Array): Uint8Array => {
  const ends = endsOfRuns(bytes, false)
  if (ends.length === 0) return bytes
  const stuffed = new Uint8Array(bytes.length + ends.length)
  let from = 0
  ends.forEach((end, index) => {
    stuffed.set(bytes.subarray(from, end), from + index)
    from = end
  })
  stuffed.set(bytes.subarray(from), from + ends.length)
  return stuffed
}

/** What `withoutResets` was given; undefined when it has never given such bytes. */
export const withResets = (stuffed: Uint8Array): Uint8Array | undefined => {
  const ends = endsOfRuns(stuffed, true)
  if (ends.some((end) => stuffed[end] !== 0)) return undefined
  if (ends.length === 0) return stuffed
  const bytes = new Uint8Array(stuffed.length - ends.length)
  let from = 0
  ends.forEach((end, index) => {
    bytes.set(stuffed.subarray(from, end), from - index)
    from = end + 1
  })
  bytes.set(stuffed.subarray(from), from - ends.length)
  return bytes
}
