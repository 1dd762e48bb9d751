/**
 * The kernel as `microvm` boots it fastest. Debian ships a bzImage, which unpacks itself inside the guest, by an
 * emulated processor where there is no KVM. Unpacked here, once, it is an ELF file with a PVH entry point that
 * QEMU and Firecracker load as it is.
 */
import { gunzipSync, zstdDecompressSync } from "node:zlib"

const ELF_MAGIC = 0x464c457f
const LZ4_LEGACY_MAGIC = 0x184c2102
const ZSTD_MAGIC = 0xfd2fb528
const GZIP_MAGIC = 0x8b1f

/** Appends one LZ4 block to `output` from `at`; gives where it ended. */
const unpackLz4Block = (input: Uint8Array, output: Uint8Array, start: number): number => {
  let from = 0
  let at = start
  const next = () => {
    const byte = input[from++]
    if (byte === undefined) throw new Error("the kernel's LZ4 block is cut short")
    return byte
  }
  const extended = (nibble: number) => {
    let length = nibble
    if (nibble === 15) {
      let byte: number
      do {
        byte = next()
        length += byte
      } while (byte === 255)
    }
    return length
  }
  while (from < input.length) {
    const token = next()
    const literals = extended(token >> 4)
    output.set(input.subarray(from, from + literals), at)
    from += literals
    at += literals
    if (from >= input.length) break
    const distance = next() | (next() << 8)
    const length = extended(token & 15) + 4
    if (distance === 0 || distance > at) throw new Error("the kernel's LZ4 block refers to nothing")
    for (let copied = 0; copied < length; copied++, at++) output[at] = output[at - distance] ?? 0
  }
  return at
}

const unpackLz4 = (payload: Buffer, size: number): Uint8Array => {
  const output = new Uint8Array(size)
  let at = 0
  for (let from = 4; from < payload.length; ) {
    const length = payload.readUInt32LE(from)
    at = unpackLz4Block(payload.subarray(from + 4, from + 4 + length), output, at)
    from += 4 + length
  }
  if (at !== size) throw new Error(`the kernel unpacks to ${at} bytes instead of ${size}`)
  return output
}

/** The ELF file inside a bzImage; offsets are those of the kernel's x86 boot protocol, from version 2.08 on. */
export const unpackKernel = (bzImage: Buffer): Uint8Array => {
  if (bzImage.toString("latin1", 0x202, 0x206) !== "HdrS") throw new Error("the kernel is no bzImage")
  const setupSectors = bzImage.readUInt8(0x1f1) || 4
  const start = (setupSectors + 1) * 512 + bzImage.readUInt32LE(0x248)
  const end = start + bzImage.readUInt32LE(0x24c)
  const payload = bzImage.subarray(start, end - 4)
  const unpacked = (() => {
    if (payload.readUInt32LE(0) === LZ4_LEGACY_MAGIC) return unpackLz4(payload, bzImage.readUInt32LE(end - 4))
    if (payload.readUInt32LE(0) === ZSTD_MAGIC) return zstdDecompressSync(payload)
    if (payload.readUInt16LE(0) === GZIP_MAGIC) return gunzipSync(payload)
    throw new Error(`the kernel is packed in a way that is not known here (${payload.toString("hex", 0, 4)})`)
  })()
  if (Buffer.from(unpacked.buffer, unpacked.byteOffset).readUInt32LE(0) !== ELF_MAGIC) {
    throw new Error("the kernel unpacks to something that is no ELF file")
  }
  return unpacked
}

/** What a module asks for, by the names in its `.modinfo`; names are those of files, with `_` for `-`. */
export const moduleDependencies = (module: Buffer): ReadonlyArray<string> => {
  const at = module.indexOf("\0depends=", 0, "latin1")
  if (at === -1) return []
  const start = at + "\0depends=".length
  const list = module.toString("latin1", start, module.indexOf(0, start))
  return list === "" ? [] : list.split(",")
}
