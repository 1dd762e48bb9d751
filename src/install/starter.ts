/** The configuration of a host that has none yet. */

/** Where the starter configuration puts things. */
const STATE = "/var/lib/nibrunner"

/** A valid configuration: volumes on this disk, the proxy on port 80, the metrics page for this machine alone. */
export const starterConfig = (maxApps: number, measured: string): string => `\
# The configuration of this nibrunner host. It is yours: nothing rewrites it. Every section and key that there is
# stands in deploy/config.example.toml; nibrunnerd check says whether a change is right, nibrunnerd start applies it.

# How many apps this host has room for. Measured here: ${measured}.
max_apps = ${maxApps}
# The most microVMs that boot or wake at the same time.
max_concurrent_vm_starts = 2

[paths]
state_dir = "${STATE}"
runtime_dir = "/run/nibrunner"
snapshot_dir = "${STATE}/snapshots"
guest_image_dir = "${STATE}/guest"
desired_state_file = "${STATE}/desired.json"
versions_file = "${STATE}/versions.json"

[artifacts]
store_url = "${STATE}/artifact-store"

[volumes]
backend = "local-file"
storage_prefix = "volumes"

[exports]
store_url = "${STATE}/export-store"
staging_dir = "${STATE}/exports"

[network]
denied_egress_addresses_v4 = []
denied_egress_addresses_v6 = []

[proxy.http]
listen_address = "0.0.0.0"
port = 80

[metrics]
listen_address = "127.0.0.1"
port = 9100

[logs]
keep_mib_per_app = 256
`
