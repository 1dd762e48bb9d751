/** How paths and words are spelled in systemd's unit files (systemd.syntax(7), systemd.unit(5)). */

const bytesOf = (text: string): ReadonlyArray<number> => Array.from(new TextEncoder().encode(text))

const hex = (byte: number): string => `\\x${byte.toString(16).padStart(2, "0")}`

/** A percent sign would begin a specifier. */
const percent = (text: string): string => text.replaceAll("%", "%%")

/** One word, in quotes where it needs them. */
export const word = (text: string): string =>
  /^[A-Za-z0-9_@:,./=+-]+$/u.test(text)
    ? text
    : `"${percent(text).replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`

/** One argument of a command line, in which systemd would fill in variables. */
export const argument = (text: string): string => word(text).replaceAll("$", "$$$$")

/** A command line. In the name of the program no variable is filled in. */
export const commandLine = (program: string, ...args: ReadonlyArray<string>): string =>
  [word(program), ...args.map(argument)].join(" ")

/** Whether systemd starts a program with this path: with quotes or a backslash in it it starts none. */
export const canBeStarted = (program: string): boolean => !/["'\\\x00-\x1f\x7f]/u.test(program)

/** The value of `EnvironmentFile=`: not a word but the rest of the line, and a pattern of file names. */
export const environmentFile = (path: string): string => percent(path).replaceAll(/[*?[\\]/gu, "\\$&")

/** The value of a setting that is one text and not words, as `What=` and `Where=`. */
export const plainText = percent

/** The name of the unit that a path stands for, without its suffix, as `systemd-escape --path` gives it. */
export const pathUnitName = (path: string): string => {
  const parts = path.split("/").filter((part) => part !== "")
  if (parts.length === 0) return "-"
  return bytesOf(parts.join("/"))
    .map((byte, at) => {
      const character = String.fromCharCode(byte)
      if (character === "/") return "-"
      const plain = /[A-Za-z0-9:_.]/u.test(character) && !(character === "." && at === 0)
      return plain ? character : hex(byte)
    })
    .join("")
}
