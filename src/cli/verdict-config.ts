import { Result } from "effect"
import { decodeConfig } from "../config/decode.ts"
import { secretRanges } from "../config/secrets.ts"
import type { Verdict } from "./verdict.ts"

/** What is wrong with a `config.toml`. */
export const judgeConfig = (file: string, bytes: Uint8Array): Verdict => {
  const strict = Result.try(() => new TextDecoder("utf-8", { fatal: true }).decode(bytes))
  const text = Result.getOrElse(strict, () => new TextDecoder().decode(bytes))
  const verdict = { kind: "config" as const, truncated: false, text, hidden: () => secretRanges(text) }
  if (Result.isFailure(strict))
    return { ...verdict, issues: [{ path: "", message: "the file is not UTF-8", line: 1, column: 1 }] }
  const decoded = decodeConfig(text, file)
  return { ...verdict, issues: Result.isSuccess(decoded) ? [] : decoded.failure.issues }
}
