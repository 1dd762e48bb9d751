/** Boot specs for tests that care about little of them. */
import type { BootSpec } from "../../src/services/Guest.ts"

export const bootSpec = (changes: Partial<BootSpec> = {}): BootSpec => ({
  hostname: "web",
  network: { address: "10.201.0.2", prefixLength: 30, gateway: "10.201.0.1" },
  nameservers: [],
  layerCount: 0,
  program: "/bin/true",
  args: [],
  workingDirectory: "/srv",
  environment: [["PATH", "/usr/bin:/bin"]],
  restartPolicy: {
    maxRestarts: 0,
    initialBackoffMs: 10,
    maxBackoffMs: 10,
    backoffFactor: 1,
    resetAfterMs: 600_000
  },
  hostTime: Date.UTC(2026, 0, 1),
  ...changes
})
