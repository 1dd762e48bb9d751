import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import { Cause, Effect, Exit, Runtime } from "effect"
import { Command } from "effect/cli"
import { TestConsole } from "effect/testing"
import { check } from "../../../src/cli/check.ts"
import { schema } from "../../../src/cli/schema.ts"
import { baseConfig } from "../config/arbitraries.ts"
import { tomlOf } from "../config/toml-text.ts"
import { baseDocument } from "../document/fixtures.ts"

const cli = Command.make("nibrunnerd").pipe(Command.withSubcommands([check, schema]))

/** A folder with files in it, for the length of a test. */
const folderWith = (files: Readonly<Record<string, string | Uint8Array>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const folder = mkdtempSync(join(tmpdir(), "nibrunner-check-"))
      for (const [name, contents] of Object.entries(files)) writeFileSync(join(folder, name), contents)
      return folder
    }),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true }))
  )

/** What the command prints, and the code that the process would exit with. */
const run = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  const before = (yield* TestConsole.logLines).length
  const errorsBefore = (yield* TestConsole.errorLines).length
  const exit = yield* Effect.exit(
    Command.runWith(cli, { version: "0" })(args).pipe(Effect.provide(NodeServices.layer))
  )
  const lines = (yield* TestConsole.logLines).slice(before).map(String)
  const code = Exit.isSuccess(exit) ? 0 : Runtime.getErrorExitCode(Cause.squash(exit.cause))
  const errors = (yield* TestConsole.errorLines).slice(errorsBefore).map(String).join("\n")
  return { code, text: lines.join("\n"), lines, errors }
})

const document = JSON.stringify(baseDocument(), null, 2)
const broken = document.replace('"httpPort": 3000', '"httpPort": 0')
const config = tomlOf(baseConfig)

describe("nibrunnerd check", () => {
  it.effect("says of valid files that they are, and exits with 0", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({ "desired.json": document, "config.toml": config })
      const { code, lines } = yield* run("check", join(folder, "desired.json"), join(folder, "config.toml"))
      assert.strictEqual(code, 0)
      assert.deepStrictEqual(lines, [
        `${folder}/desired.json: valid desired.json`,
        `${folder}/config.toml: valid config.toml`
      ])
    })
  )
  it.effect("warns at its line of what this version does not support and no host starts with", () =>
    Effect.gen(function* () {
      const text = `${tomlOf({ ...baseConfig, "hypervisor.backend": '"firecracker"', "hypervisor.network": '"tap"' })}`
      const folder = yield* folderWith({ "config.toml": text })
      const file = join(folder, "config.toml")
      const { code, errors } = yield* run("check", file)
      assert.strictEqual(code, 0)
      const line = text.split("\n").findIndex((one) => one.includes("firecracker")) + 1
      assert.include(
        errors,
        `${file}:${line}:11: warning: hypervisor.backend is firecracker, which this version does not support: use qemu`
      )
      // Sections that wait for their time are no mistake: the example has them.
      assert.notInclude(errors, "cron")
    })
  )
  it.effect("answers at once for what is no text at all, or one that is made to be read for ever", () =>
    Effect.gen(function* () {
      const program = new Uint8Array(8 * 2 ** 20).map((_, n) => (n * 7919) % 251)
      const folder = yield* folderWith({
        program,
        "dots.toml": "a.".repeat(400_000),
        "quotes.toml": '"\n'.repeat(400_000),
        "dotted.toml": "a.b.c\n".repeat(150_000)
      })
      for (const name of ["program", "dots.toml", "quotes.toml", "dotted.toml"]) {
        const { code, text } = yield* run("check", "--as", "config", join(folder, name))
        assert.strictEqual(code, 1, name)
        assert.include(text, `${name}:1:`)
      }
    })
  )
  it.effect(
    "lists each problem as a compiler does, with the line and a mark under the place, and exits with 1",
    () =>
      Effect.gen(function* () {
        const folder = yield* folderWith({ "d.json": broken })
        const { code, text } = yield* run("check", join(folder, "d.json"))
        const line = broken.split("\n").findIndex((text) => text.includes("httpPort")) + 1
        assert.strictEqual(code, 1)
        assert.strictEqual(
          text,
          [
            `${folder}/d.json:${line}:21: httpPort is 0, but must be an integer from 1 to 65535`,
            "  at /instances/0/config/httpPort",
            ` ${line} |         "httpPort": 0,`,
            ` ${" ".repeat(String(line).length)} |                     ^`,
            "",
            `${folder}/d.json: 1 problem`
          ].join("\n")
        )
      })
  )
  it.effect("prints one JSON object a file on one line each, valid or not", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({
        "good.json": document,
        "bad.json": broken,
        "bad.toml": `${config}\n[metric]\nport = 1\n`
      })
      const files = ["good.json", "bad.json", "bad.toml"].map((name) => join(folder, name))
      const { code, lines } = yield* run("check", "--json", ...files)
      assert.strictEqual(code, 1)
      assert.lengthOf(lines, 3)
      const [good, bad, toml] = lines.map((line) => JSON.parse(line))
      assert.deepStrictEqual(good, { file: files[0], valid: true, issues: [] })
      assert.isFalse(bad.valid)
      assert.deepStrictEqual(Object.keys(bad.issues[0]), ["path", "message", "line", "column"])
      assert.strictEqual(bad.issues[0].path, "/instances/0/config/httpPort")
      assert.strictEqual(toml.issues[0].path, "metric")
      assert.include(toml.issues[0].message, "metrics")
    })
  )
  it.effect("tells files apart by their content, whatever they are called", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({ a: `\ufeff \n${document}`, b: config })
      const { code, lines } = yield* run("check", join(folder, "a"), join(folder, "b"))
      assert.strictEqual(code, 0)
      assert.match(lines[0] ?? "", /valid desired\.json$/u)
      assert.match(lines[1] ?? "", /valid config\.toml$/u)
    })
  )
  it.effect("takes a file for what --as says", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({ a: "[1, 2]", b: document })
      assert.include((yield* run("check", "--as", "desired", join(folder, "a"))).text, "must be an object")
      assert.include((yield* run("check", "--as", "config", join(folder, "b"))).text, "not TOML")
      const unknown = yield* run("check", "--as", "reported", join(folder, "b"))
      assert.notStrictEqual(unknown.code, 0)
    })
  )
  it.effect("warns of a field that is ignored and looks like a slip, and calls the document valid", () =>
    Effect.gen(function* () {
      const slip = document.replace('"restartPolicy"', '"port": [],\n        "restartPolicy"')
      const folder = yield* folderWith({ "d.json": slip })
      const file = join(folder, "d.json")
      const line = slip.split("\n").findIndex((text) => text.includes('"port"')) + 1
      const listing = yield* run("check", file)
      assert.strictEqual(listing.code, 0)
      assert.strictEqual(listing.text, `${file}: valid desired.json`)
      assert.strictEqual(
        listing.errors,
        [
          `${file}:${line}:9: warning: port is not a known key, and is ignored; did you mean "ports"?`,
          "  at /instances/0/config/port",
          ` ${line} |         "port": [],`,
          ` ${" ".repeat(String(line).length)} |         ^`
        ].join("\n")
      )
      const json = yield* run("check", "--json", file)
      assert.strictEqual(json.code, 0)
      assert.deepStrictEqual(JSON.parse(json.text), { file, valid: true, issues: [] })
      assert.strictEqual(json.errors, listing.errors)
    })
  )
  it.effect("warns of an app that no host runs, with its place, and calls the document valid", () =>
    Effect.gen(function* () {
      const none = document.replace('"vcpuCount": 1', '"vcpuCount": 0')
      const folder = yield* folderWith({ "d.json": none })
      const file = join(folder, "d.json")
      const line = none.split("\n").findIndex((text) => text.includes('"vcpuCount"')) + 1
      const { code, errors, text } = yield* run("check", file)
      assert.strictEqual(code, 0)
      assert.strictEqual(text, `${file}: valid desired.json`)
      assert.strictEqual(
        errors,
        [
          `${file}:${line}:24: warning: app app-1 is not run: config.resources.vcpuCount is 0: a microVM needs at least 1`,
          "  at /instances/0/config/resources/vcpuCount",
          ` ${line} |           "vcpuCount": 0,`,
          ` ${" ".repeat(String(line).length)} |                        ^`
        ].join("\n")
      )
    })
  )
  it.effect("shows no value of a variable that it warns of", () =>
    Effect.gen(function* () {
      const changed = baseDocument()
      changed.instances[0].hostnames = []
      changed.instances[0].config.command.environment = { URL: "hunter2@$NIBRUN_HOSTNAME" }
      const folder = yield* folderWith({ "d.json": JSON.stringify(changed, null, 2) })
      const { errors } = yield* run("check", join(folder, "d.json"))
      assert.include(errors, "config.command.environment.URL refers to NIBRUN_HOSTNAME")
      assert.notInclude(errors, "hunter2")
    })
  )
  it.effect("tells of the slip with the field that is missing, and warns beside it", () =>
    Effect.gen(function* () {
      const slips = document.replace('"httpPort"', '"httport"').replace("{", '{ "revison": "r1",')
      const folder = yield* folderWith({ "d.json": slips })
      const { code, errors, text } = yield* run("check", join(folder, "d.json"))
      assert.strictEqual(code, 1)
      assert.include(
        text,
        'httpPort is missing; it must be an integer from 1 to 65535; "httport" is not a known key: was it meant?'
      )
      assert.include(errors, 'warning: revison is not a known key, and is ignored; did you mean "revision"?')
      assert.notInclude(errors, "httport")
    })
  )
  it.effect("offers the files of a directory that is named in their place", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({
        "desired.json": document,
        "config.toml": config,
        "other.json": "{}"
      })
      const { code, text } = yield* run("check", `${folder}/`)
      assert.strictEqual(code, 1)
      assert.include(
        text,
        `it is a directory; name a file in it, as ${folder}/desired.json or ${folder}/config.toml`
      )
      const other = yield* folderWith({ "b.json": document, "a.toml": config, "notes.txt": "" })
      assert.include((yield* run("check", other)).text, `as ${other}/a.toml or ${other}/b.json`)
      const empty = yield* folderWith({})
      assert.match((yield* run("check", empty)).text, /it is a directory; name a file in it$/mu)
    })
  )
  it.effect("refuses a file that is too large by its size, unread", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({ "d.json": "{" })
      truncateSync(join(folder, "d.json"), 2 ** 40)
      const { code, text } = yield* run("check", join(folder, "d.json"))
      assert.strictEqual(code, 1)
      assert.include(text, "it has 1099511627776 bytes, and at most 67108864 are read")
    })
  )
  for (const [what, text, column, sentence] of [
    ["a comma after the last member", '{"a": 1,}', 8, "this ',' is one too many: no member follows it"],
    ["a comma after the last item", '{"a": [1 , ]}', 10, "this ',' is one too many: no value follows it"],
    ["a comment", '{"a": 1, // one\n"b": 2}', 10, "JSON has no comments"],
    ["single quotes", "{'a': 1}", 2, "JSON has double quotes alone"]
  ] as const)
    it.effect(`names ${what} as what keeps a document from being JSON`, () =>
      Effect.gen(function* () {
        const folder = yield* folderWith({ "d.json": text })
        const { lines } = yield* run("check", "--json", join(folder, "d.json"))
        const [issue] = JSON.parse(lines[0] ?? "").issues
        assert.deepStrictEqual([issue.line, issue.column], [1, column])
        assert.include(issue.message, sentence)
      })
    )
  it.effect("says of a file that cannot be read why, and goes on to the next", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({ "desired.json": document })
      const files = [join(folder, "none.json"), folder, join(folder, "desired.json")]
      const { code, lines } = yield* run("check", "--json", ...files)
      assert.strictEqual(code, 1)
      const [none, directory, good] = lines.map((line) => JSON.parse(line))
      assert.include(none.issues[0].message, "there is no such file")
      assert.include(directory.issues[0].message, "cannot be read")
      assert.isTrue(good.valid)
    })
  )
  it.effect("shows no secret on the lines that it lists", () =>
    Effect.gen(function* () {
      const secret = "hunter2"
      const of = (environment: string) =>
        JSON.stringify(baseDocument()).replace(/"environment":\{[^}]*\}/u, environment)
      const folder = yield* folderWith({
        "name.json": of(`"environment":{"A-B":"${secret}","C":"${secret}"}`),
        "type.json": of(`"environment":{"A":["${secret}"],"C":"${secret}"}`),
        "typo.json": of(`"enviroment":{"A":"${secret}"}`),
        "text.json": of(`"environment":"A=${secret}"`),
        "syntax.json": of(`"environment":{"A":"${secret}" "B":"${secret}"}`),
        "syntax2.json": of(`"environment":{"${secret}"}`),
        "cut.json": of(`"environment":{"A":"${secret}`).split(secret)[0] + secret,
        "lost.toml": `${config}\nAWS_SECRET_ACCESS_KEY = "${secret}"\n`,
        "login.toml": tomlOf({ ...baseConfig, "artifacts.store_url": `"s3://key:${secret}@bucket"` })
      })
      const names = ["name", "type", "typo", "text", "syntax", "syntax2", "cut"].map((n) => `${n}.json`)
      for (const name of [...names, "lost.toml", "login.toml"]) {
        const listing = yield* run("check", join(folder, name))
        assert.strictEqual(listing.code, 1, name)
        assert.notInclude(listing.text, secret, name)
        assert.notInclude((yield* run("check", "--json", join(folder, name))).text, secret, name)
      }
    })
  )
  it.effect("shows of a long line what is near the mark", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({ "d.json": JSON.stringify(JSON.parse(broken)) })
      const { lines } = yield* run("check", join(folder, "d.json"))
      const [, , shown, marked] = lines.join("\n").split("\n")
      assert.isBelow(shown?.length ?? 0, 120)
      assert.strictEqual(shown?.[marked?.indexOf("^") ?? 0], "0")
    })
  )
  it.effect("lets no file steer the terminal", () =>
    Effect.gen(function* () {
      const folder = yield* folderWith({
        "d.json": document.replace('"host-1"', '"\u009b31m\u202eevil"'),
        "c.toml": `${config}\n"\\u001b[31m" = 1 # \u009b31m\n`
      })
      const { text } = yield* run("check", join(folder, "d.json"), join(folder, "c.toml"))
      const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e]/u
      assert.notMatch(text, steering)
      const json = yield* run("check", "--json", join(folder, "d.json"), join(folder, "c.toml"))
      assert.notMatch(json.text, steering)
      assert.include(JSON.parse(json.lines[0] ?? "").issues[0].message, "\u202eevil")
    })
  )
  it.effect("asks for a file when none is named", () =>
    Effect.gen(function* () {
      const { code, text } = yield* run("check")
      assert.notStrictEqual(code, 0)
      assert.include(text, "FILE")
    })
  )
})

describe("nibrunnerd schema", () => {
  for (const name of ["desired", "reported", "config"])
    it.effect(`prints the JSON Schema of ${name}, of draft 2020-12`, () =>
      Effect.gen(function* () {
        const { code, text } = yield* run("schema", name)
        assert.strictEqual(code, 0)
        const printed = JSON.parse(text)
        assert.strictEqual(printed.$schema, "https://json-schema.org/draft/2020-12/schema")
        assert.isTrue(new Ajv2020().validateSchema(printed))
      })
    )
  it.effect("knows no other", () =>
    Effect.gen(function* () {
      assert.notStrictEqual((yield* run("schema", "host")).code, 0)
    })
  )
})
