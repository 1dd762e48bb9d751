import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { verdictListing } from "../../../src/cli/check.ts"
import { judgeConfig } from "../../../src/cli/verdict-config.ts"
import { decodeConfig } from "../../../src/config/decode.ts"
import { exampleConfig } from "../../../src/config/example.ts"
import { mutatedText, textMutation } from "../document/arbitraries.ts"
import { baseConfig, configMutations, configs, mutatedConfig, zerofsConfig } from "./arbitraries.ts"
import { type DottedKeys, tomlOf } from "./toml-text.ts"

const issuesOf = (text: string) => {
  const decoded = decodeConfig(text, "/etc/nibrunner/config.toml")
  return Result.isSuccess(decoded) ? [] : decoded.failure.issues
}
const issuesWith = (changes: DottedKeys) => issuesOf(tomlOf({ ...baseConfig, ...changes }))
const only = (text: string) => {
  const issues = issuesOf(text)
  assert.lengthOf(issues, 1, JSON.stringify(issues))
  return issues[0]
}

describe("what is said of a configuration that is refused", () => {
  it("all problems at once, with dotted key, line, column and reason, in the order of the text", () => {
    const text = [
      "max_apps = 0",
      "[paths]",
      'state_dir = "var"',
      'runtime_dir = "/run"',
      'snapshot_dir = "/s"',
      'guest_image_dir = "/g"',
      'desired_state_fil = "/d"',
      "[artifacts]",
      'store_url = "gs://bucket"',
      "[volumes]",
      'backend = "local-file"',
      '"storage_prefix" = "../x"',
      "[volumes.zerofs]",
      'binary = "x"',
      "[proxy]",
      'http = { listen_address = "::", port = 0 }',
      "[network]",
      "denied_egress_addresses_v6 = []",
      "denied_egress_addresses_v4 = [",
      '  "10.0.0.0/8",',
      '  "10.0.0.0/40"',
      "]"
    ].join("\n")
    assert.deepStrictEqual(
      issuesOf(text).map(({ column, line, path }) => `${line}:${column} ${path}`),
      [
        "1:12 max_apps",
        "2:2 paths.desired_state_file",
        "3:13 paths.state_dir",
        "7:1 paths.desired_state_fil",
        "9:13 artifacts.store_url",
        "12:20 volumes.storage_prefix",
        "13:2 volumes.zerofs",
        "16:40 proxy.http.port",
        "21:3 network.denied_egress_addresses_v4[1]"
      ]
    )
  })
  it("of a key that is not known, the nearest one that is", () => {
    for (const [wrong, right] of [
      ["metrics.prot", "port"],
      ["proxy.http.listen_adress", "listen_address"],
      ["proxy.raw.max-ports-per-guest", "max_ports_per_guest"],
      ["artefacts.store_url", "artifacts"],
      ["max_concurrent_vms_starts", "max_concurrent_vm_starts"]
    ] as const)
      assert.include(
        issuesWith({ [wrong]: "1" })
          .map(({ message }) => message)
          .join(),
        `did you mean "${right}"?`
      )
  })
  it("of a key that is near to none, those that there are", () => {
    const [issue] = issuesWith({ "logs.rotation": "1" })
    assert.include(issue?.message, "known here: keep_mib_per_app")
  })
  it("of max_apps that is too large, the most that there can be", () => {
    assert.strictEqual(
      issuesWith({ max_apps: "6000" })[0]?.message,
      "max_apps is 6000, but must be an integer from 1 to 5567"
    )
  })
  it("of a port among the apps', which those are", () => {
    assert.include(
      issuesWith({ "metrics.port": "21005" })[0]?.message,
      "the ports 21000 to 21799 belong to apps"
    )
  })
  it("of each wrong range, what is wrong with it", () => {
    for (const [range, reason] of [
      ["10.0.0.0", "has no length"],
      ["10.0.0.0/x", "not a whole number"],
      ["fc00::/7", "is an IPv6 range"],
      ["10.0.0.0/33", "at most 32"],
      ["10.0.0/8", "does not start with an IPv4 address"]
    ] as const)
      assert.include(
        issuesWith({ "network.denied_egress_addresses_v4": JSON.stringify([range]) })[0]?.message,
        reason
      )
  })
  it("of each wrong prefix, what is wrong with it", () => {
    for (const [prefix, reason] of [
      ["", "0 bytes"],
      ["/a", "neither start nor end"],
      ["a/", "neither start nor end"],
      ["a//b", "empty part"],
      ["a/../b", "'.' or '..'"],
      ["ü".repeat(300), "600 bytes"]
    ] as const)
      assert.include(issuesWith({ "volumes.storage_prefix": JSON.stringify(prefix) })[0]?.message, reason)
  })
  it("of a store on another service, its scheme and nothing that follows it", () => {
    const [issue] = issuesWith({ "artifacts.store_url": '"gs://key:hunter2@bucket"' })
    assert.include(issue?.message, "gs://")
    assert.notInclude(issue?.message, "hunter2")
    assert.notInclude(
      issuesWith({ "artifacts.store_url": '"s3://key:hunter2@bucket"' })[0]?.message,
      "hunter2"
    )
  })
  it("of a float where an integer belongs, that it is one", () => {
    assert.include(issuesWith({ "metrics.port": "9100.0" })[0]?.message, "the float 9100")
  })
  it("of a text that is not TOML, where it stops being it", () => {
    const issue = only('max_apps = 3\nx = "abc\ny = 1')
    assert.deepStrictEqual([issue?.path, issue?.line], ["", 2])
    assert.include(issue?.message, "the file is not TOML")
    assert.include(only("a = 1\na = 2")?.message, "redefine")
    assert.include(only(`a = ${"[".repeat(20_000)}`)?.message, "nested")
    assert.include(only(`a = "${"x".repeat(2_000_000)}"`)?.message, "characters")
  })
  it("of an empty file, everything that must be there", () => {
    assert.deepStrictEqual(
      issuesOf("").map(({ path }) => path),
      ["max_apps", "paths", "artifacts", "volumes"]
    )
  })
})

describe("any configuration", () => {
  it("that is right is accepted, and so is the example", () => {
    fc.assert(fc.property(configs, (config) => assert.isEmpty(issuesOf(tomlOf(config)))))
    assert.isEmpty(issuesOf(exampleConfig()))
  })
  it("keeps the white space around its texts to itself", () => {
    const decoded = decodeConfig(tomlOf({ ...baseConfig, "paths.state_dir": '"  /srv/x\\t"' }), "c")
    assert.strictEqual(Result.getOrThrow(decoded).paths.state_dir, "/srv/x")
  })
  it("that is wrong is refused with places inside it", () => {
    fc.assert(
      fc.property(configs, configMutations, (config, changes) => {
        const text = tomlOf(mutatedConfig(config, changes))
        const lines = text.split("\n")
        for (const { column, line, message } of issuesOf(text)) {
          assert.isAtMost(column, Array.from(lines[line - 1] ?? "").length + 1)
          assert.isAtLeast(column, 1)
          assert.isBelow(message.length, 512)
        }
      })
    )
  })
  it("whose text was damaged is read or refused", () => {
    fc.assert(
      fc.property(configs, textMutation, (config, change) => {
        const bytes = new TextEncoder().encode(mutatedText(tomlOf(config), change))
        verdictListing("config.toml", judgeConfig("config.toml", bytes))
      }),
      { numRuns: 500 }
    )
  })
  it("has both zerofs sections whenever its volumes are there", () => {
    const { exports, volumes } = Result.getOrThrow(decodeConfig(tomlOf(zerofsConfig), "c"))
    assert.isDefined(volumes.zerofs)
    assert.isDefined(exports)
  })
})
