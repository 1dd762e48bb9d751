/** A document that fills a host. */

const digest = (n: number) => n.toString(16).padStart(64, "0")

export const instanceOf = (n: number) => ({
  appId: `app-${n}`,
  deploymentId: `deploy-${4000 + n}`,
  volumeId: `volume-${n}`,
  desiredState: n % 3 === 0 ? "running" : "on-request",
  layers: [
    { kind: "filesystem", digest: digest(n % 7), objectKey: `bases/runtime-${n % 7}` },
    {
      kind: "executable",
      digest: digest(1000 + n),
      objectKey: `apps/app-${n}/server`,
      destinationPath: "/app/server"
    }
  ],
  config: {
    httpPort: 3000,
    command: {
      program: "/app/server",
      args: ["--port", "3000"],
      workingDirectory: "/app",
      environment: {
        DATABASE_URL: "sqlite:///app/data.db",
        PUBLIC_URL: `https://$NIBRUN_HOSTNAME/`,
        SESSION_SECRET: digest(9000 + n)
      }
    },
    resources: { vcpuCount: 1, memoryMib: 256 },
    healthCheck: {
      kind: "http",
      path: "/healthz",
      intervalMs: 5000,
      timeoutMs: 2000,
      gracePeriodMs: 30000,
      healthyThreshold: 1,
      unhealthyThreshold: 3
    },
    restartPolicy: {
      maxRestarts: 5,
      initialBackoffMs: 500,
      maxBackoffMs: 30000,
      backoffFactor: 2,
      resetAfterMs: 60000
    }
  },
  hostnames: [{ hostname: `app-${n}.apps.example.com`, kind: "platform" }]
})

/** A document with so many apps, a volume for each. */
export const documentOf = (apps: number) => {
  const numbers = Array.from({ length: apps }, (_, n) => n)
  return {
    hostId: "host-1",
    revision: "bench",
    volumes: numbers.map((n) => ({
      volumeId: `volume-${n}`,
      appId: `app-${n}`,
      sizeBytes: 8589934592,
      desiredState: "present"
    })),
    instances: numbers.map(instanceOf),
    checkpoints: [],
    exports: []
  }
}
