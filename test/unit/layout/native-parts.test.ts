import { assert, describe, it } from "@effect/vitest"
import { read } from "./imports.ts"

/** The oldest Node that the set-up runs on. */
const OLDEST_NODE = 18

interface Locked {
  readonly optional?: boolean
  readonly os?: ReadonlyArray<string>
  readonly cpu?: ReadonlyArray<string>
  readonly libc?: ReadonlyArray<string>
  readonly engines?: { readonly node?: string }
}

/** Whether `engines.node` lets the newest release of a major version in: `^20.19.0 || >=22.12.0` and the like. */
const admits = (range: string, major: number) =>
  range.split("||").some((part) => {
    const [, operator, version] = /^\s*(\^|>=)\s*(\d+)/u.exec(part) ?? []
    return operator === "^" ? Number(version) === major : Number(version) <= major
  })

const isForThisPlatform = ({ os, cpu, libc }: Locked) =>
  os?.includes("linux") && cpu?.includes("x64") && (libc === undefined || libc.includes("glibc"))

/** Native parts that npm would leave out on the oldest Node, since they are optional and ask for a newer one. */
const leftOut = (packages: Readonly<Record<string, Locked>>) =>
  Object.entries(packages)
    .filter(([, entry]) => entry.optional && isForThisPlatform(entry))
    .filter(([, entry]) => !admits(entry.engines?.node ?? ">=0", OLDEST_NODE))
    .map(([folder]) => folder)

describe("the native parts of the dependencies", () => {
  it("are all installed by npm on the oldest Node that the set-up runs on", () => {
    assert.deepStrictEqual(leftOut(JSON.parse(read("package-lock.json")).packages), [])
  })

  it("would be missed if one were optional and asked for a newer Node", () => {
    const native = {
      os: ["linux"],
      cpu: ["x64"],
      libc: ["glibc"],
      engines: { node: "^20.19.0 || >=22.12.0" }
    }
    assert.deepStrictEqual(leftOut({ part: { ...native, optional: true } }), ["part"])
    assert.deepStrictEqual(leftOut({ part: native }), [])
    assert.deepStrictEqual(leftOut({ part: { ...native, optional: true, libc: ["musl"] } }), [])
  })
})
