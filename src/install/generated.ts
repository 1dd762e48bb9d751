/** Files that `install` writes, and how it knows them again. */

/** A file of a host. Its path is absolute. */
export interface HostFile {
  readonly path: string
  readonly contents: string
  /** Permission bits. */
  readonly mode: number
}

/** The first line of every generated file. Who takes it away has made the file their own. */
export const MARKER =
  "# Written by nibrunnerd install, which replaces it. Without this line the file is yours."

/** A generated file. */
export const generatedFile = (path: string, lines: ReadonlyArray<string>): HostFile => ({
  path,
  contents: `${[MARKER, ...lines].join("\n")}\n`,
  mode: 0o644
})

/** Whether a text is one that `install` has written. */
export const isGenerated = (contents: string): boolean => contents.startsWith(MARKER)
