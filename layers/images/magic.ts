/** What a file is, by its first bytes. */

/** How much of a file's start tells what it is. Bytes. */
export const MAGIC_BYTES = 1082

const at = (head: Uint8Array, offset: number, magic: ReadonlyArray<number> | string): boolean => {
  const bytes = typeof magic === "string" ? Array.from(magic, (character) => character.charCodeAt(0)) : magic
  return bytes.every((byte, index) => head[offset + index] === byte)
}

/** Whether a layer of kind `filesystem` can be this: squashfs (little-endian) or ext2/3/4. */
export const isFilesystem = (head: Uint8Array): boolean => at(head, 0, "hsqs") || at(head, 1080, [0x53, 0xef])

/** What the bytes look like instead, for the sentence; undefined when they look like nothing known. */
export const looksLike = (head: Uint8Array): string | undefined => {
  if (head.length === 0) return "it is empty"
  if (at(head, 0, [0x1f, 0x8b])) return "it looks like a gzip archive"
  if (at(head, 0, [0x28, 0xb5, 0x2f, 0xfd])) return "it looks like a zstd archive"
  if (at(head, 0, "PK")) return "it looks like a zip archive"
  if (at(head, 0, [0x7f, 0x45, 0x4c, 0x46])) return "it looks like a program (a layer of kind executable?)"
  if (at(head, 257, "ustar")) return "it looks like a tar archive"
  if (at(head, 0, "QFI")) return "it looks like a qcow2 image, raw images are taken"
  return undefined
}
