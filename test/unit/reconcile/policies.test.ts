import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { admit } from "../../../src/reconcile/admission.ts"
import { backoffMs, earnedBack, mayStart } from "../../../src/reconcile/backoff.ts"
import { bootSpec, environment, primaryHostname } from "../../../src/reconcile/boot-spec.ts"
import { refusal } from "../../../src/reconcile/refusal.ts"
import { nextSlot } from "../../../src/reconcile/slots.ts"
import type { NetworkLink } from "../../../src/services/Network.ts"
import { encodeHostRecord } from "../../../src/wire/encode.ts"
import { instance, volume } from "./documents.ts"

describe("restart backoff", () => {
  const policy = {
    maxRestarts: 3,
    initialBackoffMs: 500,
    maxBackoffMs: 30_000,
    backoffFactor: 2,
    resetAfterMs: 60_000
  }

  it("waits the initial time after the first start and grows by the factor up to the most", () => {
    assert.deepStrictEqual(
      [1, 2, 3, 7, 20].map((attempts) => backoffMs(policy, attempts)),
      [500, 1000, 2000, 30_000, 30_000]
    )
  })

  it("never waits less than nothing or more than the most, whatever factor the document names", () => {
    fc.assert(
      fc.property(
        fc.double({ noNaN: true }),
        fc.nat(),
        fc.nat(100_000),
        fc.integer({ min: 1, max: 1_000_000 }),
        (backoffFactor, initialBackoffMs, maxBackoffMs, attempts) => {
          const wait = backoffMs({ ...policy, backoffFactor, initialBackoffMs, maxBackoffMs }, attempts)
          assert.isTrue(wait >= 0 && wait <= maxBackoffMs, `${wait}`)
        }
      )
    )
  })

  it("allows the first start and as many restarts as the document says", () => {
    assert.deepStrictEqual(
      [0, 1, 2, 3, 4].map((attempts) => mayStart(policy, attempts)),
      [true, true, true, true, false]
    )
    assert.isTrue(mayStart({ ...policy, maxRestarts: 0 }, 0))
    assert.isFalse(mayStart({ ...policy, maxRestarts: 0 }, 1))
  })

  it("gives the budget back to an app that stayed up for resetAfterMs", () => {
    assert.isFalse(earnedBack(policy, 59_999))
    assert.isTrue(earnedBack(policy, 60_000))
  })
})

describe("slots", () => {
  it("go round, so that a slot given back is not the next one given", () => {
    assert.strictEqual(nextSlot(-1, new Set(), 3), 0)
    assert.strictEqual(nextSlot(0, new Set(), 3), 1)
    assert.strictEqual(nextSlot(2, new Set(), 3), 0)
  })

  it("are never given twice and none is given when all are taken", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: -1, max: 60 }),
        fc.array(fc.nat(50)),
        (max, cursor, held) => {
          const taken = new Set(held.filter((slot) => slot < max))
          const slot = nextSlot(cursor, taken, max)
          if (taken.size === max) assert.isUndefined(slot)
          else assert.isTrue(slot !== undefined && slot >= 0 && slot < max && !taken.has(slot))
        }
      )
    )
  })
})

describe("memory admission", () => {
  it("admits in document order and names what the rest is short of", () => {
    const admissions = admit(1000, new Map(), [
      { appId: "a", memoryMib: 600 },
      { appId: "b", memoryMib: 600 },
      { appId: "c", memoryMib: 400 }
    ])
    assert.deepStrictEqual(
      [...admissions],
      [
        ["a", 0],
        ["b", 200],
        ["c", 0]
      ]
    )
  })

  it("never promises more than the host has, beyond what is held already", () => {
    const claims = fc.array(fc.record({ appId: fc.uuid(), memoryMib: fc.nat(4096) }))
    fc.assert(
      fc.property(
        fc.nat(20_000),
        fc.dictionary(fc.uuid(), fc.nat(4096)),
        claims,
        (capacity, holding, wanted) => {
          const holders = new Map(Object.entries(holding))
          const held = [...holders.values()].reduce((sum, mib) => sum + mib, 0)
          const admissions = admit(capacity, holders, wanted)
          const admitted = wanted
            .filter(({ appId }) => admissions.get(appId) === 0)
            .reduce((sum, { memoryMib }) => sum + memoryMib, 0)
          assert.isTrue(admitted === 0 || held + admitted <= capacity)
        }
      )
    )
  })
})

describe("the environment of a program", () => {
  it("holds the host's names, then the defaults, then the app's own with references filled in", () => {
    const app = instance("app-1", {
      config: {
        command: {
          program: "/app/server",
          args: [],
          workingDirectory: "/data",
          environment: {
            URL: "http://${NIBRUN_HOSTNAME}:$NIBRUN_HTTP_PORT/",
            COST: "$$ $HOME ${NIBRUN_HTTP_PORT",
            PORT: "1",
            HOME: "/root"
          }
        }
      }
    })
    assert.deepStrictEqual(Object.fromEntries(environment(app)), {
      NIBRUN_HTTP_PORT: "3000",
      NIBRUN_HOSTNAME: "app-1.example.com",
      PORT: "3000",
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      TMPDIR: "/tmp",
      URL: "http://app-1.example.com:3000/",
      COST: "$$ $HOME ${NIBRUN_HTTP_PORT",
      HOME: "/root"
    })
  })

  it("is told of as many restarts as it can count when the document names more", () => {
    const app = (maxRestarts: number) => {
      const { restartPolicy } = instance("app-1").config
      return instance("app-1", { config: { restartPolicy: { ...restartPolicy, maxRestarts } } })
    }
    const link = { guestAddress: "10.201.0.2", hostAddress: "10.201.0.1", prefixLength: 30 } as NetworkLink
    const restarts = (most: number) => bootSpec(app(most), link, 0).restartPolicy.maxRestarts
    assert.strictEqual(restarts(3), 3)
    const spec = bootSpec(app(Number.MAX_SAFE_INTEGER), link, 0)
    assert.isTrue(Result.isSuccess(encodeHostRecord({ kind: "boot-spec", spec })))
    assert.strictEqual(restarts(Number.MAX_SAFE_INTEGER), 2 ** 32 - 1)
  })

  it("names the first platform hostname, else the first", () => {
    const custom = { hostname: "shop.example.org", kind: "custom" } as const
    const platform = { hostname: "app-1.example.com", kind: "platform" } as const
    assert.strictEqual(
      primaryHostname(instance("app-1", { hostnames: [custom, platform] })),
      platform.hostname
    )
    assert.strictEqual(primaryHostname(instance("app-1", { hostnames: [custom] })), custom.hostname)
    assert.isUndefined(primaryHostname(instance("app-1", { hostnames: [] })))
  })
})

describe("an instance that this host does not run", () => {
  const limits = { servesHttp: true, rawPortsPerGuest: 2, vcpuCount: 4, memoryMib: 4096 }
  const refused = (config: Record<string, unknown>, host: Partial<typeof limits> = {}) =>
    refusal(instance("app-1", { config }), [volume("app-1")], { ...limits, ...host })
  const check = {
    kind: "tcp",
    intervalMs: 1,
    timeoutMs: 1,
    gracePeriodMs: 0,
    healthyThreshold: 1,
    unhealthyThreshold: 1
  }
  const port = (name: string, guestPort: number) => ({ name, guestPort })

  const cases: ReadonlyArray<readonly [string, string | undefined, RegExp | undefined]> = [
    ["a plain one is run", refused({}), undefined],
    ["no hostname is served without [proxy.http]", refused({}, { servesHttp: false }), /\[proxy\.http\]/],
    ["vcpuCount of 0", refused({ resources: { vcpuCount: 0, memoryMib: 256 } }), /vcpuCount is 0/],
    [
      "vcpuCount beyond the host's",
      refused({ resources: { vcpuCount: 5, memoryMib: 256 } }),
      /vcpuCount is 5.* has 4/
    ],
    ["memoryMib of 0", refused({ resources: { vcpuCount: 1, memoryMib: 0 } }), /memoryMib is 0/],
    [
      "memoryMib that no guest boots with",
      refused({ resources: { vcpuCount: 1, memoryMib: 64 } }),
      /memoryMib is 64: .*at least 96 MiB/
    ],
    [
      "memoryMib beyond the host's",
      refused({ resources: { vcpuCount: 1, memoryMib: 5000 } }),
      /memoryMib is 5000.* 4096/
    ],
    ["a raw port named http", refused({ ports: [port("http", 80)] }), /"http"/],
    ["a raw port that is httpPort", refused({ ports: [port("web", 3000)] }), /3000 \(web\)/],
    ["two raw ports of one name", refused({ ports: [port("a", 1), port("a", 2)] }), /two ports "a"/],
    ["one guest port twice", refused({ ports: [port("a", 1), port("b", 1)] }), /guest port 1 twice/],
    [
      "more raw ports than allowed",
      refused({ ports: [port("a", 1), port("b", 2), port("c", 3)] }),
      /max_ports_per_guest is 2/
    ],
    [
      "raw ports without [proxy.raw]",
      refused({ ports: [port("a", 1)] }, { rawPortsPerGuest: 0 }),
      /no \[proxy\.raw\]/
    ],
    [
      "a health path without a slash",
      refused({ healthCheck: { ...check, kind: "http", path: "x" } }),
      /path must start/
    ],
    [
      "a health path with a line break",
      refused({ healthCheck: { ...check, kind: "http", path: "/\r\nx" } }),
      /control character/
    ],
    ["an interval of 0", refused({ healthCheck: { ...check, intervalMs: 0 } }), /intervalMs is 0/],
    ["a threshold of 0", refused({ healthCheck: { ...check, healthyThreshold: 0 } }), /healthyThreshold is 0/]
  ]
  it.each(cases)("%s", (_, sentence, expected) => {
    if (expected === undefined) assert.isUndefined(sentence)
    else assert.match(sentence ?? "", expected)
  })

  it("NIBRUN_HOSTNAME without a hostname is refused by the variable's name, without its value", () => {
    const command = {
      program: "/p",
      args: [],
      workingDirectory: "/",
      environment: { URL: "secret-$NIBRUN_HOSTNAME" }
    }
    const sentence = refusal(instance("app-1", { hostnames: [], config: { command } }), [], limits)
    assert.match(sentence ?? "", /environment\.URL/)
    assert.notInclude(sentence, "secret")
  })
})
