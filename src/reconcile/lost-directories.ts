/** What is said when a directory of the host is taken from under its daemon. */
import type { OwnDirectory } from "../services/HostDirectories.ts"

/** What is lost with it, and what helps: a clause for each. */
const consequence: Record<OwnDirectory["key"], string> = {
  "paths.state_dir":
    "what is noted now is lost when the daemon ends, and volumes that are files when their microVMs do. Move it back, or save what the apps hold before anything is stopped, the daemon too",
  "paths.runtime_dir":
    "microVMs run on, but none boots or wakes, no command reaches this daemon, and the next one cannot take them up. Move it back, or have the apps stopped before the daemon is",
  "paths.snapshot_dir": "apps that sleep boot anew. Move it back, or restart the daemon, which makes another",
  "volumes.zerofs.checkpoint_runtime_dir":
    "another host may take it for its own. Restart the daemon, which makes another"
}

/** The sentence for the log and the report. */
export const lostDirectory = ({ key, path }: OwnDirectory): string =>
  `${path} (${key}) was removed, moved away or covered while the daemon runs: ${consequence[key]}`
