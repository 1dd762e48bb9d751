import { HostId } from "../../src/document/schema.ts"
import type { HostReport } from "../../src/report/schema.ts"

/** The report of a small host that runs nothing, with this message. */
export const emptyReport = (message: string): HostReport => ({
  hostId: HostId.make("h"),
  reportedAt: "2026-01-01T00:00:00Z",
  state: "ready",
  capacity: { vcpuCount: 1, memoryMib: 1, cacheBytes: 1 },
  allocatable: { vcpuCount: 1, memoryMib: 1, cacheBytes: 1 },
  versions: { agent: "1", guestImage: "1", zerofs: "none", firecracker: "none" },
  volumes: [],
  instances: [],
  checkpoints: [],
  exports: [],
  message
})
