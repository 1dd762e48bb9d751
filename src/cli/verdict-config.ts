import { Result } from "effect"
import { decodeConfig, MAX_CONFIG_LENGTH, toDottedKey } from "../config/decode.ts"
import { secretRanges } from "../config/secrets.ts"
import { tomlPlaces } from "../config/toml.ts"
import { unsupportedIn } from "../config/unsupported.ts"
import type { Verdict } from "./verdict.ts"

/** What is wrong with a `config.toml`. Of a file that is no text, or too long to be one, no line is shown. */
export const judgeConfig = (file: string, bytes: Uint8Array): Verdict => {
  const strict = Result.try(() => new TextDecoder("utf-8", { fatal: true }).decode(bytes))
  const shown = Result.filterOrFail(
    strict,
    (text) => text.length <= MAX_CONFIG_LENGTH,
    () => undefined
  ).pipe(Result.getOrElse(() => ""))
  const verdict = {
    kind: "config" as const,
    warnings: [],
    truncated: false,
    text: shown,
    hidden: () => secretRanges(shown)
  }
  if (Result.isFailure(strict))
    return { ...verdict, issues: [{ path: "", message: "the file is not UTF-8", line: 1, column: 1 }] }
  const decoded = decodeConfig(strict.success, file)
  if (Result.isFailure(decoded)) return { ...verdict, issues: decoded.failure.issues }
  // What has no effect yet is no mistake; the daemon says so as it starts.
  const unsupported = unsupportedIn(decoded.success).filter(({ refused }) => refused)
  if (unsupported.length === 0) return { ...verdict, issues: [] }
  const place = tomlPlaces(strict.success)
  const warnings = unsupported.map(({ message, path }) => ({
    path: toDottedKey(path),
    message,
    ...place(path, "value")
  }))
  return { ...verdict, issues: [], warnings }
}
