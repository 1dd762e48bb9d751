import { inspect } from "node:util"
import { assert, describe, it } from "@effect/vitest"
import { Redacted, Result } from "effect"
import { decodeConfig } from "../../../src/config/decode.ts"
import { hostEnvFile, hostSecrets, namesSetIn, neededVariables } from "../../../src/config/host-env.ts"
import { baseConfig, zerofsConfig } from "./arbitraries.ts"
import { type DottedKeys, tomlOf } from "./toml-text.ts"

const file = "/etc/nibrunner/config.toml"
const configOf = (keys: DottedKeys) => Result.getOrThrow(decodeConfig(tomlOf(keys), file))
const neededNames = (keys: DottedKeys) => neededVariables(configOf(keys)).map(({ name }) => name)

const aws = ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
const environment = {
  AWS_REGION: "eu-central-1",
  AWS_ACCESS_KEY_ID: "AKIA",
  AWS_SECRET_ACCESS_KEY: "hunter2",
  ZEROFS_ENCRYPTION_PASSWORD: "hunter3"
}

describe("the variables of host.env", () => {
  it("are none on a host that keeps everything on its own disk", () => {
    assert.isEmpty(neededNames(baseConfig))
    assert.deepStrictEqual(Result.getOrThrow(hostSecrets(configOf(baseConfig), {}, file)), {})
  })
  it("are those of S3 when any store is there", () => {
    assert.deepStrictEqual(neededNames({ ...baseConfig, "artifacts.store_url": '"s3://b"' }), aws)
    assert.deepStrictEqual(neededNames({ ...baseConfig, "exports.store_url": '"s3://b/x"' }), aws)
  })
  it("are the password of ZeroFS when volumes are there, and those of S3 when its blocks are", () => {
    assert.deepStrictEqual(neededNames(zerofsConfig), ["ZEROFS_ENCRYPTION_PASSWORD", ...aws])
    assert.deepStrictEqual(neededNames({ ...zerofsConfig, "volumes.zerofs.storage_url": '"/srv"' }), [
      "ZEROFS_ENCRYPTION_PASSWORD"
    ])
  })
  it("are refused by name when they are not set, empty or blank, with the key that needs them and the file", () => {
    const secrets = hostSecrets(
      configOf(zerofsConfig),
      { AWS_REGION: "", AWS_ACCESS_KEY_ID: "  ", ZEROFS_ENCRYPTION_PASSWORD: "hunter3" },
      file
    )
    assert.isTrue(Result.isFailure(secrets))
    if (Result.isFailure(secrets)) {
      for (const name of aws) assert.include(secrets.failure.message, name)
      assert.notInclude(secrets.failure.message, "ZEROFS_ENCRYPTION_PASSWORD")
      assert.include(secrets.failure.message, "volumes.zerofs.storage_url")
      assert.include(secrets.failure.message, "/etc/nibrunner/host.env")
      assert.notInclude(secrets.failure.message, "hunter")
    }
  })
  it("are told apart: those that the file does not set, and those that it sets but the daemon was not given", () => {
    const setInFile = namesSetIn("AWS_REGION=eu\nAWS_ACCESS_KEY_ID=AKIA\nAWS_SECRET_ACCESS_KEY=\n")
    const secrets = hostSecrets(
      configOf({ ...baseConfig, "artifacts.store_url": '"s3://b"' }),
      { AWS_REGION: "eu" },
      file,
      setInFile
    )
    assert.strictEqual(
      Result.isFailure(secrets) ? secrets.failure.message : "",
      "not set or empty: AWS_SECRET_ACCESS_KEY (needed because artifacts.store_url is an s3:// address): set it in /etc/nibrunner/host.env and start the daemon again; " +
        "set in /etc/nibrunner/host.env, but not in the daemon's environment: AWS_ACCESS_KEY_ID (needed because artifacts.store_url is an s3:// address): the daemon's unit must name that file as its EnvironmentFile, and the daemon be started again since it was changed"
    )
  })
  it("are set by a line of the file as systemd reads it, and the last line counts", () => {
    const text = [
      "# AWS_REGION=comment",
      "; AWS_ACCESS_KEY_ID=comment",
      " A=1",
      'B="two words"',
      "C=''",
      'D=""',
      "E=",
      "F=first",
      "F=",
      "G=\\",
      "goes on",
      "no assignment",
      "1H=1",
      "I=x\r"
    ].join("\n")
    assert.deepStrictEqual([...namesSetIn(text)], ["A", "B", "G", "I"])
  })
  it("never show their values, however they are printed", () => {
    const secrets = Result.getOrThrow(hostSecrets(configOf(zerofsConfig), environment, file))
    for (const text of [String(secrets), JSON.stringify(secrets), inspect(secrets, { depth: 9 })])
      assert.notInclude(text, "hunter")
    assert.strictEqual(secrets.s3 && Redacted.value(secrets.s3.secretAccessKey), "hunter2")
    assert.strictEqual(secrets.zerofsPassword && Redacted.value(secrets.zerofsPassword), "hunter3")
  })
  it("lie beside the configuration", () => {
    assert.strictEqual(hostEnvFile("/etc/nibrunner/config.toml"), "/etc/nibrunner/host.env")
    assert.strictEqual(hostEnvFile("config.toml"), "host.env")
  })
})
