/** What a guest is told to run, made of what the document says. */
import { fillReferences, type RuntimeValues } from "../document/references.ts"
import type { DesiredInstance, RestartPolicy } from "../document/schema.ts"
import type { BootSpec } from "../services/Guest.ts"
import type { NetworkLink } from "../services/Network.ts"

/** The hostname that `NIBRUN_HOSTNAME` stands for: the first `platform` one, else the first. */
export const primaryHostname = (instance: DesiredInstance): string | undefined =>
  (instance.hostnames.find(({ kind }) => kind === "platform") ?? instance.hostnames[0])?.hostname

/** Names that an app always gets from the host, whatever it names itself. */
const hostVariables = new Set(["NIBRUN_HOSTNAME", "NIBRUN_HTTP_PORT", "PORT"])

/** What a program finds where the document names nothing. */
const defaults = (workingDirectory: string): ReadonlyArray<readonly [string, string]> => [
  ["PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
  ["HOME", workingDirectory],
  ["TMPDIR", "/tmp"]
]

/** The program's whole environment, references filled in; the host's own names win over the app's. */
export const environment = (
  instance: DesiredInstance
): ReadonlyArray<readonly [name: string, value: string]> => {
  const { command, httpPort } = instance.config
  const hostname = primaryHostname(instance)
  const values: RuntimeValues = {
    NIBRUN_HTTP_PORT: String(httpPort),
    ...(hostname === undefined ? {} : { NIBRUN_HOSTNAME: hostname })
  }
  const own = Object.entries(command.environment)
    .filter(([name]) => !hostVariables.has(name))
    .map(([name, value]) => [name, fillReferences(value, values)] as const)
  const given = new Set(own.map(([name]) => name))
  return [
    ...Object.entries(values),
    ["PORT", String(httpPort)] as const,
    ...defaults(command.workingDirectory).filter(([name]) => !given.has(name)),
    ...own
  ]
}

/** The most restarts that a guest counts: more are as good as without end. */
const MOST_RESTARTS = 2 ** 32 - 1

const guestPolicy = (policy: RestartPolicy): RestartPolicy => ({
  ...policy,
  maxRestarts: Math.min(policy.maxRestarts, MOST_RESTARTS)
})

/** @param hostTime ms since 1970 */
export const bootSpec = (instance: DesiredInstance, link: NetworkLink, hostTime: number): BootSpec => ({
  hostname: instance.appId,
  network: { address: link.guestAddress, prefixLength: link.prefixLength, gateway: link.hostAddress },
  nameservers: ["1.1.1.1", "1.0.0.1"],
  layerCount: instance.layers.length,
  program: instance.config.command.program,
  args: instance.config.command.args,
  workingDirectory: instance.config.command.workingDirectory,
  environment: environment(instance),
  restartPolicy: guestPolicy(instance.config.restartPolicy),
  hostTime
})
