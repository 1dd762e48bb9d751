/** Commands of the build: what they print is shown only when they fail. */
import { spawnSync } from "node:child_process"

export const run = (
  command: string,
  args: ReadonlyArray<string>,
  options: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {}
): string => {
  const { error, status, stdout, stderr } = spawnSync(command, args, {
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    env: { ...process.env, LC_ALL: "C", ...options.env }
  })
  if (error !== undefined) throw new Error(`${command} could not be run: ${error.message}`)
  if (status !== 0) {
    throw new Error(`${command} ended with ${status}:\n${stderr.trim().split("\n").slice(-15).join("\n")}`)
  }
  return stdout
}
