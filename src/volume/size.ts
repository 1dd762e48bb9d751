/** Which sizes a volume can have, and what becomes of one that is there already. */

/** Bytes. The smallest device that ext4 with 4 KiB blocks and a journal fits on: 2048 blocks. */
export const SMALLEST_VOLUME = 2048 * 4096

export type SizeDecision =
  | { readonly kind: "create" }
  | { readonly kind: "keep" }
  | { readonly kind: "grow" }
  | { readonly kind: "refuse"; readonly operation: "created" | "grown"; readonly reason: string }

/** What is to be done for a volume of `wanted` bytes where one of `present` bytes is, or none. */
export const decideSize = (present: number | undefined, wanted: number): SizeDecision => {
  if (present === undefined) {
    return wanted < SMALLEST_VOLUME
      ? {
          kind: "refuse",
          operation: "created",
          reason: `sizeBytes ${wanted} is too small for an ext4 filesystem, which takes at least ${SMALLEST_VOLUME} bytes`
        }
      : { kind: "create" }
  }
  if (wanted === present) return { kind: "keep" }
  return wanted > present
    ? { kind: "grow" }
    : {
        kind: "refuse",
        operation: "grown",
        reason: `it has ${present} bytes and the document asks for ${wanted}; a volume never shrinks`
      }
}
