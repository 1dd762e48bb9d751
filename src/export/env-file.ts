/**
 * The `.env` of a bundle: environment variables as text, quoted so that a POSIX shell that sources the file and dotenv
 * (https://www.npmjs.com/package/dotenv, 16 and 17) both read back the same bytes.
 *
 * The two agree on little. In single quotes a shell takes everything but the quote as it stands, and so does dotenv, in
 * double quotes a shell minds `$`, `` ` `` and `\`, and dotenv only `\n` and `\r`. A value that has no form that both
 * read right is given to each in its own: to the shell as an `eval`, which dotenv passes over, and to dotenv in a
 * here-document of a command that does nothing.
 */

export interface EnvFile {
  readonly text: string
  /** Variables whose value dotenv has no form for. A shell reads them right. */
  readonly shellOnly: ReadonlyArray<string>
}

/** A quote in a comment: without it dotenv would look for the end of a value after `\'` in the next one. */
const guard = "# ' ends what comes before"

/** Of an assignment, as octal escapes of printf: one line, whatever is in the value. */
const forShell = (name: string, value: string): string => {
  const assignment = `${name}='${value.replaceAll("'", `'\\''`)}'`
  const escaped = Array.from(new TextEncoder().encode(assignment), (byte) => {
    const character = String.fromCharCode(byte)
    return /[A-Za-z0-9_=]/u.test(character) ? character : `\\${byte.toString(8).padStart(3, "0")}`
  })
  return `eval "$(printf '${escaped.join("")}')"`
}

/** What dotenv alone reads as the value; undefined when nothing is. */
const forDotenv = (value: string): string | undefined => {
  const endsOpen = value.endsWith("\\")
  if (!value.includes('"') && !/\\[nr]/u.test(value) && !endsOpen) return `"${value.replaceAll("\r", "\\r")}"`
  if (value.includes("\r")) return undefined
  if (!value.includes("`") && !endsOpen) return `\`${value}\``
  // An unquoted value whose outermost quotes are taken away.
  return /[\n#]/u.test(value) || !value.includes("'") ? undefined : `'${value}'`
}

const delimiterFor = (text: string): string => {
  let delimiter = "END"
  while (text.split("\n").includes(delimiter)) delimiter += "_"
  return delimiter
}

/** @param environment by name; names are a shell's own (`variables.ts`), and no value holds a zero byte */
export const envFile = (environment: Readonly<Record<string, string>>): EnvFile => {
  const shellOnly: Array<string> = []
  const lines = Object.entries(environment).flatMap(([name, value]) => {
    if (!/['\r]/u.test(value)) return [`${name}='${value}'`, ...(value.endsWith("\\") ? [guard] : [])]
    if (!/["$`\\\r]/u.test(value)) return [`${name}="${value}"`]
    const second = forDotenv(value)
    if (second === undefined) {
      shellOnly.push(name)
      return [forShell(name, value)]
    }
    const assignment = `${name}=${second}`
    const delimiter = delimiterFor(assignment)
    return [forShell(name, value), `: <<'${delimiter}'`, assignment, delimiter]
  })
  return { text: lines.map((line) => `${line}\n`).join(""), shellOnly }
}
