/** The texts that a host is made of. */
import { execFileSync } from "node:child_process"
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { decodeConfig } from "../../../src/config/decode.ts"
import { namesSetIn, neededVariables } from "../../../src/config/host-env.ts"
import { MAX_SLOTS } from "../../../src/config/ports.ts"
import { DEFAULT_ID_RANGE, readIdRange } from "../../../src/hypervisor/identity.ts"
import { capacityOf, fittingApps, verdictOnApps } from "../../../src/install/capacity.ts"
import { newHostEnv, valueIn } from "../../../src/install/host-env.ts"
import { type IdTexts, reserveIds } from "../../../src/install/id-ranges.ts"
import { kernelFiles, kernelSettings } from "../../../src/install/kernel.ts"
import { hostDirectories, hostFiles } from "../../../src/install/layout.ts"
import { starterConfig } from "../../../src/install/starter.ts"
import { pathUnitName } from "../../../src/install/systemd-text.ts"
import { runtimeNames } from "../../../src/install/units.ts"
import { zerofsEnvironmentOf } from "../../../src/install/zerofs.ts"
import { configs } from "../config/arbitraries.ts"
import { CONFIG_FILE, configOf, local, onZerofs } from "./support.ts"

const nobody: IdTexts = { subuid: "", subgid: "", passwd: "", group: "" }

describe("the name of a path's unit", () => {
  it("is the one that systemd-escape gives", () => {
    const part = fc.string({ unit: fc.constantFrom(..."ab9._-:@ %$\\\"'é"), minLength: 1, maxLength: 12 })
    const path = fc
      .array(
        part.filter((text) => text !== "." && text !== ".."),
        { maxLength: 4 }
      )
      .map((parts) => `/${parts.join("/")}`)
    const paths = fc.sample(path, 200)
    const escaped = execFileSync("systemd-escape", ["--path", "--", ...paths], { encoding: "utf8" })
    assert.deepStrictEqual(paths.map(pathUnitName), escaped.trimEnd().split(/[ \n]/u))
  })
})

describe("directories below /run", () => {
  it("are systemd's to make, others are not", () => {
    assert.deepStrictEqual(runtimeNames(["/run/a", "/run/a/b/", "/var/run/c", "/run/a"]), ["a", "a/b", "c"])
    assert.deepStrictEqual(runtimeNames(["/run", "/runner/x", "/srv/run/x", "/run/../etc"]), [])
  })
})

describe("the ids of VMMs", () => {
  it("are the default range on a machine where nobody has any of it", () => {
    const plan = reserveIds({ ...nobody, subuid: "someone:100000:65536" }, 100)
    const line = `nibrunner:${DEFAULT_ID_RANGE.base}:${DEFAULT_ID_RANGE.count}\n`
    assert.deepStrictEqual(plan, {
      kind: "reserve",
      range: DEFAULT_ID_RANGE,
      subuid: `someone:100000:65536\n${line}`,
      subgid: line
    })
  })

  it("never overlap with anybody's, whoever has what, and are read back as they were set aside", () => {
    const owned = fc.record({
      first: fc.oneof(
        fc.integer({ min: 0, max: 2 ** 32 - 2 }),
        fc.integer({ min: 1_879_000_000, max: 1_879_200_000 })
      ),
      count: fc.integer({ min: 1, max: 200_000 })
    })
    const ids = fc.array(fc.integer({ min: 1_879_000_000, max: 1_879_200_000 }), { maxLength: 4 })
    fc.assert(
      fc.property(
        fc.array(owned, { maxLength: 8 }),
        fc.array(owned, { maxLength: 8 }),
        ids,
        (users, groups, accounts) => {
          const lines = (ranges: typeof users) =>
            ranges.map(({ count, first }, at) => `u${at}:${first}:${count}\n`).join("")
          const plan = reserveIds(
            {
              subuid: lines(users),
              subgid: lines(groups),
              passwd: accounts.map((id) => `a${id}:x:${id}:${id}::/:/bin/sh\n`).join(""),
              group: ""
            },
            MAX_SLOTS
          )
          if (plan.kind !== "reserve") return assert.strictEqual(plan.kind, "problem")
          const { base, count } = plan.range
          for (const { first, count: length } of [...users, ...groups])
            assert.isTrue(first + length <= base || base + count <= first)
          for (const id of accounts) assert.isTrue(id < base || id >= base + count)
          assert.deepStrictEqual(readIdRange(plan.subuid ?? ""), plan.range)
          assert.deepStrictEqual(readIdRange(plan.subgid ?? ""), plan.range)
        }
      )
    )
  })

  it("stay where an administrator has set them aside for as many apps", () => {
    const texts = { ...nobody, subuid: "nibrunner:500000:300\n", subgid: "nibrunner:500000:300\n" }
    assert.deepStrictEqual(reserveIds(texts, 300), { kind: "reserved", range: { base: 500_000, count: 300 } })
  })

  it.each([
    ["too few", { subuid: "nibrunner:500000:10" }, "gives nibrunner 10 ids, but max_apps is 100"],
    ["of an account", { subuid: "nibrunner:500000:200", passwd: "x:x:500007:1::/:" }, "belong to x too"],
    ["another's", { subuid: "nibrunner:500000:200\ny:500100:5" }, "belong to y too"],
    ["no range", { subuid: "nibrunner:many:200" }, "is not NAME:FIRST:COUNT"],
    ["root's", { subgid: "nibrunner:0:200" }, "has to lie between"],
    [
      "different ones for groups",
      { subuid: "nibrunner:500000:200", subgid: "nibrunner:600000:200" },
      "make them the same, as nibrunner:500000:200"
    ]
  ])("are refused where they are %s", (_, texts, sentence) => {
    const plan = reserveIds({ ...nobody, ...texts }, 100)
    assert.strictEqual(plan.kind, "problem")
    if (plan.kind === "problem") assert.include(plan.sentence, sentence)
  })
})

describe("a new host.env", () => {
  it("names every variable, sets none, and comments what is not needed", () => {
    fc.assert(
      fc.property(configs, (keys) => {
        const config = configOf(keys)
        const text = newHostEnv(config)
        assert.strictEqual(namesSetIn(text).size, 0)
        for (const { name } of neededVariables(config)) assert.match(text, new RegExp(`^${name}=$`, "mu"))
        const bare = [...text.matchAll(/^([A-Z_0-9]+)=/gmu)].map(([, name]) => name)
        assert.sameMembers(
          bare,
          neededVariables(config).map(({ name }) => name)
        )
      }),
      { numRuns: 30 }
    )
  })

  it("is read as systemd reads it where an address is looked for", () => {
    assert.strictEqual(valueIn("A=\"x y\"\nA= 'z' \n", "A"), "z")
    assert.strictEqual(valueIn("# A=1\n; A=2\n", "A"), undefined)
    assert.strictEqual(valueIn("A=1\\\n2\r\n", "A"), "12")
    assert.deepStrictEqual(zerofsEnvironmentOf("AWS_ENDPOINT_URL=https://a\nAWS_ENDPOINT_URL_S3=\n"), {
      endpointVariable: "AWS_ENDPOINT_URL",
      endpointIsPlain: false
    })
  })
})

describe("the starter configuration", () => {
  it("is a valid one for every number of apps", () => {
    for (const apps of [1, 100, MAX_SLOTS])
      assert.strictEqual(decodeConfig(starterConfig(apps, "so"), CONFIG_FILE)._tag, "Success")
  })
})

describe("how many apps fit", () => {
  const machine = (guestMemoryMib: number, diskMib: number | undefined, localVolumes: boolean) =>
    capacityOf({ guestMemoryMib, diskMib, localVolumes })

  it("is the least of memory, disk and ports, and at least one", () => {
    assert.strictEqual(fittingApps(machine(16_384, 1_000_000, true)), 64)
    assert.strictEqual(fittingApps(machine(65_536, 84_480, true)), 10)
    assert.strictEqual(fittingApps(machine(65_536, 84_480, false)), 256)
    assert.strictEqual(fittingApps(machine(10, 10, true)), 1)
    assert.strictEqual(fittingApps(machine(2 ** 30, undefined, false)), 100)
    assert.strictEqual(fittingApps(machine(2 ** 30, 2 ** 40, false)), MAX_SLOTS)
  })

  it("is said with what more of them would count on", () => {
    const capacity = machine(16_384, 844_800, true)
    assert.match(
      verdictOnApps(50, capacity),
      /max_apps is 50; .* for 64 apps .*, disk for 100, ports for 5567$/u
    )
    assert.match(verdictOnApps(80, capacity), /counts on some of the apps being asleep$/u)
    assert.match(verdictOnApps(200, capacity), /set max_apps to 100$/u)
  })
})

describe("the layout", () => {
  it("asks nothing of the kernel for guests on the user network with volumes on this disk", () => {
    assert.deepStrictEqual([kernelFiles(configOf(local)), kernelSettings(configOf(local))], [[], []])
  })

  it("follows more flows for more apps", () => {
    const flows = (apps: number) => kernelSettings(configOf({ ...onZerofs, max_apps: `${apps}` }))[1]?.value
    assert.deepStrictEqual([flows(1), flows(256), flows(1000)], [262_144, 262_144, 1_024_000])
  })

  it("names each file and each directory once, with absolute paths, and no file in place of a directory", () => {
    fc.assert(
      fc.property(configs, (keys) => {
        const config = configOf(keys)
        const files = hostFiles(config, { configFile: CONFIG_FILE, program: "/opt/n", hostEnv: "" })
        const paths = [...files, ...hostDirectories(config)].map(({ path }) => path)
        assert.strictEqual(new Set(paths).size, paths.length)
        for (const path of paths) assert.match(path, /^\//u)
      }),
      { numRuns: 30 }
    )
  })
})
