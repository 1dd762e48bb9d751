/** The file of secrets, as `install` makes it: once, with every variable named. */
import { neededVariables, S3_VARIABLES, ZEROFS_VARIABLE } from "../config/host-env.ts"
import type { HostConfig } from "../config/schema.ts"

interface Variable {
  readonly name: string
  readonly says: string
}

const variables: ReadonlyArray<Variable> = [
  { name: ZEROFS_VARIABLE, says: "Encrypts the volumes on ZeroFS. Lost, all of them are." },
  { name: S3_VARIABLES[0], says: "The region of the buckets at s3:// addresses." },
  { name: S3_VARIABLES[1], says: "Who asks there." },
  { name: S3_VARIABLES[2], says: "The secret of that key." },
  { name: "AWS_SESSION_TOKEN", says: "Only for a key that is valid for a while." },
  { name: "AWS_ENDPOINT_URL_S3", says: "Where S3 is, if it is not Amazon's." },
  { name: "NIBRUNNER_LOG", says: "How much the daemon logs: debug, info, warn or error." }
]

/** The text of a new `host.env`: needed variables with nothing after their `=`, the others as comments. */
export const newHostEnv = (config: HostConfig): string => {
  const needed = new Map(neededVariables(config).map(({ name, because }) => [name, because]))
  const blocks = variables.map(({ name, says }) => {
    const because = needed.get(name)
    return because === undefined
      ? `# ${says}\n# ${name}=`
      : `# ${says}\n# Needed, because ${because}.\n${name}=`
  })
  const about = [
    "# The secrets of this host, NAME=value a line. systemd gives them to the daemon and to ZeroFS; no other",
    "# program is to read them. This file is yours: nothing writes to it again."
  ].join("\n")
  return `${[about, ...blocks].join("\n\n")}\n`
}

/**
 * The value that a `host.env` gives a variable, as systemd reads it; undefined where it names it not. The last one counts.
 * For values that are no secrets.
 */
export const valueIn = (hostEnv: string, name: string): string | undefined => {
  const values = hostEnv
    .replace(/\r(?=\n|$)/gu, "")
    .replace(/\\\n/gu, "")
    .split("\n")
    .flatMap((line) => {
      const [, key, value = ""] = /^[ \t]*([A-Za-z_][A-Za-z0-9_]*)=(.*)$/u.exec(line) ?? []
      if (key !== name) return []
      const text = value.trim()
      const [, , quoted] = /^(["'])(.*)\1$/u.exec(text) ?? []
      return [quoted ?? text]
    })
  return values.at(-1)
}
