/** Why a QEMU ended before its guest ran, in words for the operator. */

/** The last line that says something, without the program's name before it; none when there is none. */
const lastLine = (stderr: string): string | undefined =>
  stderr
    .split(/\r?\n/u)
    .map((line) => line.replace(/\p{Cc}/gu, "\ufffd").trim())
    .findLast((line) => line !== "" && !/: warning: /u.test(line))
    ?.replace(/^[^\s:]*qemu[^\s:]*: /u, "")

/** A sentence from what QEMU wrote on stderr and how it ended. */
export const explainDeath = (stderr: string, ended: string): string => {
  const line = lastLine(stderr)
  if (line === undefined) return `QEMU ${ended} and said nothing`
  const jailed = line.match(/^jail: (.*)$/u)
  if (jailed !== null) return `its VMM cannot be confined: ${jailed[1]?.slice(0, 300)}`
  const forward = line.match(/Could not set up host forwarding rule 'tcp:([\d.]+):(\d+)-[\d.]+:(\d+)'/u)
  if (forward !== null) {
    const [, address, port, guestPort] = forward
    return `port ${port} of ${address} on this host, where the guest's port ${guestPort} is to be found, cannot be had: another program listens there`
  }
  const locked = stderr.match(/Failed to get "write" lock\s+Is another process using the image \[(.*)\]\?/u)
  if (locked !== null) return `its volume ${locked[1]} is in use by another process`
  return `QEMU ${ended}: ${line.slice(0, 300)}`
}

/** There is no such program. */
export const notInstalled = (binary: string): string =>
  `${binary} is not installed (the config key hypervisor.binary names QEMU's program)`
