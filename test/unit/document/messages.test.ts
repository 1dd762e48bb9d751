import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { decodeDocument, MAX_ISSUES } from "../../../src/document/decode.ts"
import { type AnyDocument, baseDocument, bytesOf, issuesOf, jsonBytes } from "./fixtures.ts"

/** The message at a pointer after a change to the base document. */
const messageAt = (pointer: string, change: (document: AnyDocument) => void) => {
  const document = baseDocument()
  change(document)
  const issues = issuesOf(jsonBytes(document))
  const found = issues.find(({ path }) => path === pointer)
  assert.isDefined(found, JSON.stringify(issues))
  return found?.message
}

const secret = "hunter2-correct-horse"

describe("what is said of a document that is refused", () => {
  it("a number out of range: the field, what was found, what is allowed", () => {
    assert.strictEqual(
      messageAt("/instances/0/config/httpPort", (d) => {
        d.instances[0].config.httpPort = 70000
      }),
      "httpPort is 70000, but must be an integer from 1 to 65535"
    )
  })
  it("a missing key: the pointer of the key, and what it must be", () => {
    assert.strictEqual(
      messageAt("/instances/0/config/healthCheck", (d) => {
        delete d.instances[0].config.healthCheck
      }),
      'healthCheck is missing; it must be an object whose kind is "http", "tcp" or "boot-completed"'
    )
  })
  it("a wrong kind: the pointer of the kind, and the kinds that there are", () => {
    assert.strictEqual(
      messageAt("/instances/0/layers/0/kind", (d) => {
        d.instances[0].layers[0].kind = "oci"
      }),
      'kind is "oci", but must be "filesystem" or "executable"'
    )
  })
  it("no kind at all: the pointer of the kind that is missing", () => {
    assert.strictEqual(
      messageAt("/instances/0/layers/0/kind", (d) => {
        delete d.instances[0].layers[0].kind
      }),
      'kind is missing; it must be "filesystem" or "executable"'
    )
  })
  it("a policy of sleep on what does not sleep: the state, and what to do with the policy", () => {
    assert.strictEqual(
      messageAt("/instances/0/activation/sleepWhen", (d) => {
        d.instances[0].desiredState = "stopped"
        d.instances[0].activation = { sleepWhen: { kind: "traffic-idle", timeoutMs: 60_000 } }
      }),
      'sleepWhen "traffic-idle" is only for an "on-request" instance, but this one is "stopped": remove activation, or make it { "sleepWhen": { "kind": "never" } }'
    )
  })
  it("a wrong type: what it is, in a word", () => {
    assert.strictEqual(
      messageAt("/instances/0/hostnames", (d) => {
        d.instances[0].hostnames = "app.example.com"
      }),
      "hostnames is a string of 15 characters, but must be a list"
    )
  })
  it("a list that is too long: how long it is and may be", () => {
    assert.strictEqual(
      messageAt("/instances/0/layers", (d) => {
        d.instances[0].layers = Array.from({ length: 9 }, () => d.instances[0].layers[0])
      }),
      "layers is a list of 9 items, but must be a list of 1 to 8 items"
    )
  })
  it("a long text is cut to 60 characters", () => {
    const message = messageAt("/hostId", (d) => {
      d.hostId = "x".repeat(10_000)
    })
    assert.isBelow(message?.length ?? 0, 200)
    assert.include(message, "…")
  })
  it("a reference that the host does not fill in: its name, not the value around it", () => {
    const message = messageAt("/instances/0/config/command/environment/K", (d) => {
      d.instances[0].config.command.environment = { K: `${secret} \${NIBRUN_NOPE} ${secret}` }
    })
    assert.include(message, "NIBRUN_NOPE")
    assert.notInclude(message, secret)
  })

  for (const [what, environment] of [
    ["an environment value that is too long", () => ({ K: secret.repeat(5000) })],
    ["an environment value under a name that is none", () => ({ "A-B": secret })],
    ["an environment that is a text", () => secret],
    ["an environment that is a list", () => [secret]],
    ["an environment value in a list", () => ({ K: [secret] })]
  ] as ReadonlyArray<readonly [string, () => unknown]>)
    it(`${what} is refused without showing it`, () => {
      const document = baseDocument()
      document.instances[0].config.command.environment = environment()
      const issues = issuesOf(jsonBytes(document))
      assert.isNotEmpty(issues)
      assert.notInclude(JSON.stringify(issues), secret)
    })

  it("an argument that is wrong is not shown, nor a command that is one text", () => {
    for (const command of [
      { ...baseDocument().instances[0].config.command, args: [secret.repeat(300)] },
      { ...baseDocument().instances[0].config.command, args: secret },
      `/app/server --password ${secret}`
    ]) {
      const document = baseDocument()
      document.instances[0].config.command = command
      const issues = issuesOf(jsonBytes(document))
      assert.isNotEmpty(issues)
      assert.notInclude(JSON.stringify(issues), secret)
    }
  })

  it("a text that is no JSON is refused at its place without quoting it", () => {
    const [issue] = issuesOf(bytesOf(`{\n  "environment": { "K": "${secret}" oops }\n}`))
    assert.strictEqual(issue?.line, 2)
    assert.strictEqual(issue?.column, 25 + secret.length + 3)
    assert.notInclude(JSON.stringify(issue), secret)
  })

  it("all problems are told at once, in the order of the text", () => {
    const document = baseDocument()
    document.hostId = "-"
    document.volumes[1].volumeId = "vol-1"
    document.instances[0].config.httpPort = 0
    document.instances[0].volumeId = "vol-9"
    delete document.instances[0].config.command.program
    document.exports.push({ exportId: "e" })
    const paths = issuesOf(jsonBytes(document)).map(({ path }) => path)
    assert.deepStrictEqual(paths, [
      "/hostId",
      "/volumes/1/volumeId",
      "/instances/0/volumeId",
      "/instances/0/config/httpPort",
      "/instances/0/config/command/program",
      "/exports/0/appId",
      "/exports/0/volumeId",
      "/exports/0/objectKey",
      "/exports/0/desiredState"
    ])
  })

  it("the summary names the first ones and how many more there are", () => {
    const document = baseDocument()
    document.volumes = Array.from({ length: 200 }, () => ({ ...document.volumes[0], sizeBytes: -1 }))
    const decoded = decodeDocument(jsonBytes(document))
    const message = Result.isFailure(decoded) ? decoded.failure.message : ""
    assert.isBelow(message.length, 512)
    assert.isTrue(message.startsWith("/volumes/0/sizeBytes: sizeBytes is -1"))
    assert.match(message, /; and \d+ more problems$/u)
  })

  it.effect("no more than 1000 problems are listed, and it is said that there are more", () =>
    Effect.sync(() => {
      const document = { ...baseDocument(), volumes: Array.from({ length: 5000 }, () => 1), instances: [] }
      const decoded = decodeDocument(jsonBytes(document))
      assert.isTrue(Result.isFailure(decoded))
      if (Result.isFailure(decoded)) {
        assert.lengthOf(decoded.failure.issues, MAX_ISSUES)
        assert.isTrue(decoded.failure.truncated)
        assert.match(decoded.failure.message, /at least \d+ more problems$/u)
      }
    })
  )
})
