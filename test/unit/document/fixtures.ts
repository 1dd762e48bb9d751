/** Documents for the tests, and their bytes. */
import { readFileSync } from "node:fs"
import { Result } from "effect"
import { type DocumentIssue, decodeDocument } from "../../../src/document/decode.ts"
import type { HostDesiredState } from "../../../src/document/schema.ts"

// biome-ignore lint/suspicious/noExplicitAny: tests break documents in ways that no type allows
export type AnyDocument = any

/** The base document of the vectors: one instance, two volumes. A new copy each time. */
export const baseDocument = (): AnyDocument =>
  JSON.parse(readFileSync(new URL("../../vectors/desired.json", import.meta.url), "utf8")).base

export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)
export const jsonBytes = (value: unknown): Uint8Array => bytesOf(JSON.stringify(value))

/** What is wrong with a document; nothing when it is accepted. */
export const issuesOf = (bytes: Uint8Array): ReadonlyArray<DocumentIssue> => {
  const decoded = decodeDocument(bytes)
  return Result.isSuccess(decoded) ? [] : decoded.failure.issues
}

/** The document, which must be accepted. */
export const accepted = (value: unknown): HostDesiredState =>
  Result.getOrThrow(decodeDocument(jsonBytes(value)))
