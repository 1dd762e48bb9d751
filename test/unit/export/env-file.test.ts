/** What a shell and dotenv make of the `.env` of a bundle. */
import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { parse } from "dotenv"
import fc from "fast-check"
import { envFile } from "../../../src/export/env-file.ts"

type Environment = Readonly<Record<string, string>>

const byShell = (shell: string, text: string): Environment => {
  const directory = mkdtempSync(join(tmpdir(), "env-file-"))
  try {
    const file = join(directory, ".env")
    writeFileSync(file, text)
    const output = execFileSync(shell, ["-c", `set -a; . "$1"; env -0`, shell, file], {
      // With a level bash does not take a socket on its standard input for a remote login.
      env: { PATH: "/usr/bin:/bin", SHLVL: "1" },
      encoding: "utf8"
    })
    const own = new Set(["PATH", "PWD", "SHLVL", "_", "OLDPWD"])
    return Object.fromEntries(
      output
        .split("\0")
        .filter((entry) => entry !== "")
        .map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)] as const)
        .filter(([name]) => !own.has(name))
    )
  } finally {
    rmSync(directory, { recursive: true })
  }
}

const readsBack = (environment: Environment) => {
  const { text, shellOnly } = envFile(environment)
  assert.deepStrictEqual(byShell("sh", text), environment, "sh")
  const parsed = parse(text)
  const rest = (all: Environment) =>
    Object.fromEntries(Object.entries(all).filter(([name]) => !shellOnly.includes(name)))
  assert.deepStrictEqual(rest(parsed), rest(environment), "dotenv")
  return shellOnly
}

const hard: Environment = {
  EMPTY: "",
  SPACES: "  both ends \t",
  URL: "postgres://user:p$a`b@host/db?x=1#frag",
  APOSTROPHE: "it's",
  ALL_THREE: 'it\'s "so" `here`',
  LINES: "one\ntwo\n\n",
  CARRIAGE: "one\r\ntwo\r",
  SLASHES: "C:\\new\\readme\\",
  SLASH_QUOTE: "a\\'b",
  ESCAPES: "it's \\n and \\r",
  COMMENT: "it's # not a comment",
  COMMAND: "$(touch /tmp/x) `id` ${HOME}",
  ASSIGNMENT: "a'\nOTHER=1\nexport MORE='2",
  UNICODE: "grüße 😀",
  JSON: '{"a": "it\'s", "b": ["\\u0000"]}',
  DELIMITER: "it's\n\"END\nEND_"
}

describe("the .env of a bundle", () => {
  it("reads back in a shell and in dotenv, whatever is quoted in it", () => {
    assert.deepStrictEqual(readsBack(hard), [])
    assert.deepStrictEqual(byShell("bash", envFile(hard).text), hard)
  })

  it("is as people write it where that is right in both", () => {
    assert.strictEqual(envFile({ A: "b c", B: "it's" }).text, `A='b c'\nB="it's"\n`)
  })

  it("names a value that dotenv has no form for, which a shell reads right", () => {
    assert.deepStrictEqual(readsBack({ A: "'\"`\n", B: "fine" }), ["A"])
    assert.deepStrictEqual(readsBack({ A: "'\"\r", B: "fine" }), ["A"])
  })

  it("reads back for every environment", () => {
    const piece = fc.constantFrom(
      "'",
      '"',
      "`",
      "\\",
      "$",
      "\n",
      "\r",
      "#",
      " ",
      "=",
      "n",
      "A=",
      "END",
      "é",
      "!"
    )
    const value = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(""))
    const name = fc.stringMatching(/^V[A-Z0-9_]{0,3}$/u)
    fc.assert(
      fc.property(fc.dictionary(name, value, { noNullPrototype: true, maxKeys: 6 }), (environment) => {
        readsBack(environment)
      }),
      { numRuns: 150 }
    )
  })
})
