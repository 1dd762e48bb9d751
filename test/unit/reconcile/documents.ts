/** Documents for tests: small, valid, and different only in what a test is about. */
import { Schema } from "effect"
import { DesiredInstance, DesiredVolume } from "../../../src/document/schema.ts"

export const digest = (letter: string): string => letter.repeat(64)

export interface InstanceChanges {
  readonly deploymentId?: string
  readonly desiredState?: "running" | "on-request" | "stopped"
  readonly volumeId?: string
  readonly hostnames?: ReadonlyArray<{ readonly hostname: string; readonly kind: "platform" | "custom" }>
  readonly layers?: ReadonlyArray<unknown>
  readonly config?: Record<string, unknown>
  readonly activation?: unknown
}

export const volumeOf = (appId: string): string => `${appId}-vol`

/** An instance as it stands in a document. */
export const rawInstance = (appId: string, { config, ...changes }: InstanceChanges = {}) => ({
  appId,
  deploymentId: "dep-1",
  volumeId: volumeOf(appId),
  desiredState: "running",
  layers: [{ kind: "executable", digest: digest("a"), objectKey: "server", destinationPath: "/app/server" }],
  hostnames: [{ hostname: `${appId}.example.com`, kind: "platform" }],
  ...changes,
  config: {
    httpPort: 3000,
    command: { program: "/app/server", args: [], workingDirectory: "/app", environment: {} },
    resources: { vcpuCount: 1, memoryMib: 256 },
    healthCheck: {
      kind: "http",
      path: "/",
      intervalMs: 1000,
      timeoutMs: 500,
      gracePeriodMs: 10_000,
      healthyThreshold: 1,
      unhealthyThreshold: 3
    },
    restartPolicy: {
      maxRestarts: 3,
      initialBackoffMs: 1000,
      maxBackoffMs: 8000,
      backoffFactor: 2,
      resetAfterMs: 60_000
    },
    ...config
  }
})

export const rawVolume = (appId: string, changes: Record<string, unknown> = {}) => ({
  volumeId: volumeOf(appId),
  appId,
  sizeBytes: 67_108_864,
  desiredState: "present",
  ...changes
})

export const instance = (appId: string, changes?: InstanceChanges): DesiredInstance =>
  Schema.decodeUnknownSync(DesiredInstance)(rawInstance(appId, changes))

export const volume = (appId: string, changes?: Record<string, unknown>): DesiredVolume =>
  Schema.decodeUnknownSync(DesiredVolume)(rawVolume(appId, changes))

export interface DocumentParts {
  readonly instances?: ReadonlyArray<unknown>
  readonly volumes?: ReadonlyArray<unknown>
  readonly checkpoints?: ReadonlyArray<unknown>
  readonly exports?: ReadonlyArray<unknown>
  readonly revision?: string
}

/** A document that is empty but for these parts. */
export const rawDocument = (parts: DocumentParts = {}) => ({
  hostId: "host-1",
  volumes: [],
  instances: [],
  checkpoints: [],
  exports: [],
  ...parts
})

/** A document of these instances, each on a volume of its own. */
export const documentOf = (...instances: ReadonlyArray<{ readonly appId: string }>) =>
  rawDocument({ volumes: instances.map(({ appId }) => rawVolume(appId)), instances })

/** A document that runs these apps, each on a volume of its own. */
export const running = (...appIds: ReadonlyArray<string>) =>
  documentOf(...appIds.map((appId) => rawInstance(appId)))

/** A document that holds these apps stopped. */
export const stopped = (...appIds: ReadonlyArray<string>) =>
  documentOf(...appIds.map((appId) => rawInstance(appId, { desiredState: "stopped" })))
