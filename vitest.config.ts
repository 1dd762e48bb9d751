import { defineConfig } from "vitest/config"

/** Files of microVM tests run one after the other: two hosts on one machine would want the same ports. */
const HOST_WORKERS = 1

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          setupFiles: ["test/support/seed.ts"],
          // the machine may be slow and shared: these catch a hang, they measure nothing
          testTimeout: 60_000,
          hookTimeout: 60_000,
          sequence: { groupOrder: 0 }
        }
      },
      {
        test: {
          name: "host",
          include: ["test/host/**/*.test.ts", "test/guest/**/*.test.ts"],
          testTimeout: 300_000,
          hookTimeout: 300_000,
          maxWorkers: HOST_WORKERS,
          // after the unit tests: they would otherwise take the processor from the booting guests
          sequence: { groupOrder: 1 }
        }
      }
    ]
  }
})
