/** Reports for tests: small, valid, and different only in what a test is about. */

export const rawInstanceReport = (appId: string, changes: Record<string, unknown> = {}) => ({
  appId,
  deploymentId: "dep-1",
  state: "running",
  restartCount: 0,
  startedAt: "1970-01-01T00:00:00.000Z",
  ...changes
})

const resources = { vcpuCount: 4, memoryMib: 4096, cacheBytes: 1_000_000 }

export const rawReport = (changes: Record<string, unknown> = {}) => ({
  hostId: "host-1",
  reportedAt: "1970-01-01T00:00:00.000Z",
  state: "ready",
  capacity: resources,
  allocatable: resources,
  versions: { agent: "0", guestImage: "image-1", zerofs: "none", firecracker: "none" },
  volumes: [],
  instances: [],
  checkpoints: [],
  exports: [],
  message: null,
  ...changes
})
