import { Result } from "effect"
import { decodeConfig, MAX_CONFIG_LENGTH } from "../config/decode.ts"
import { secretRanges } from "../config/secrets.ts"
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
  return { ...verdict, issues: Result.isSuccess(decoded) ? [] : decoded.failure.issues }
}
