/** What an ext4 filesystem has room for. */

/** Bytes of a filesystem's start that hold its superblock. */
export const SUPERBLOCK_END = 2048

export interface Room {
  /** Bytes in blocks that nothing uses. */
  readonly bytes: number
  readonly inodes: number
}

/** Reads the superblock of an ext4, which lies at byte 1024; `undefined` where there is none. */
export const readRoom = (start: Uint8Array): Room | undefined => {
  if (start.length < SUPERBLOCK_END) return undefined
  const view = new DataView(start.buffer, start.byteOffset + 1024, 1024)
  if (view.getUint16(0x38, true) !== 0xef53) return undefined
  const blockSize = 1024 * 2 ** view.getUint32(0x18, true)
  const is64Bit = (view.getUint32(0x60, true) & 0x80) !== 0
  const freeBlocks = view.getUint32(0x0c, true) + (is64Bit ? view.getUint32(0x158, true) * 2 ** 32 : 0)
  return { bytes: freeBlocks * blockSize, inodes: view.getUint32(0x10, true) }
}
