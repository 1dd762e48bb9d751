/** PID 1's end of the wire, in C, held to the same vectors. */
import { spawnSync } from "node:child_process"
import { assert, beforeAll, describe, it } from "@effect/vitest"
import type { GuestEvent } from "../../../src/services/Guest.ts"
import {
  type GuestRecord,
  HostType,
  PHASES,
  PROBE_OUTCOMES,
  RECEIPT_OUTCOMES,
  USAGE_FIELDS
} from "../../../src/wire/records.ts"
import { compileSanitized } from "../../guest/compile.ts"
import json from "../../vectors/wire.json" with { type: "json" }
import { guestVectors, hexOf } from "./vectors.ts"

const hexOrNothing = (bytes: Uint8Array) => (bytes.length === 0 ? "-" : hexOf(bytes))

const eventCommand = (sequence: number, event: GuestEvent): string => {
  switch (event.kind) {
    case "output":
      return `output ${sequence} ${event.stream === "stdout" ? 1 : 2} ${hexOrNothing(event.bytes)}`
    case "gap":
      return `gap ${sequence} ${event.bytes}`
    case "started":
      return `started ${sequence}`
    case "failed":
      return `failed ${sequence} ${hexOf(new TextEncoder().encode(event.reason))}`
    case "restarting": {
      const exit = "code" in event.exit ? `code ${event.exit.code}` : `signal ${event.exit.signal}`
      return `restarting ${sequence} ${event.attempt} ${event.budget} ${event.total} ${exit} ${event.backoffMs}`
    }
  }
}

/** What makes PID 1 say this record. */
const command = (record: GuestRecord): string => {
  switch (record.kind) {
    case "hello-ack":
      return `hello-ack ${hexOf(record.session)} ${PHASES.indexOf(record.phase)} ${record.nextSequence}`
    case "receipt":
      assert.strictEqual(record.of, HostType.bootSpec)
      return `receipt ${record.of} ${RECEIPT_OUTCOMES.indexOf(record.outcome)}`
    case "probe-result":
      return `probe-result ${record.id} ${PROBE_OUTCOMES.indexOf(record.outcome)}`
    case "usage-result":
      return `usage-result ${record.id} ${USAGE_FIELDS.map((field) => record.usage[field]).join(" ")}`
    case "reply":
      return `reply ${record.flow} ${hexOrNothing(record.bytes)}`
    case "dropped":
      return `dropped ${record.datagrams}`
    case "event":
      assert.isDefined(record.event)
      return eventCommand(record.sequence, record.event)
  }
}

let answers: ReadonlyMap<string, string>

beforeAll(() => {
  const commands = [
    ...[...json.host, ...json.malformedHost].map(({ hex }) => `decode ${hex}`),
    ...guestVectors.map(({ record }) => `encode ${command(record)}`)
  ]
  const { status, stdout, stderr } = spawnSync(compileSanitized("vectors"), {
    input: `${commands.join("\n")}\n`,
    encoding: "utf8"
  })
  assert.strictEqual(status, 0, stderr)
  const lines = stdout.trimEnd().split("\n")
  assert.strictEqual(lines.length, commands.length)
  answers = new Map(commands.map((text, index) => [text, lines[index] ?? ""]))
})

const answerTo = (text: string) => answers.get(text) ?? assert.fail(`no answer to ${text}`)

describe("PID 1", () => {
  for (const { name, hex, record } of json.host) {
    it(`reads ${name} as the vector says`, () => {
      assert.deepStrictEqual(JSON.parse(answerTo(`decode ${hex}`)), record)
    })
  }

  for (const { name, hex } of json.malformedHost) {
    it(`takes ${name} for no record`, () => {
      assert.strictEqual(answerTo(`decode ${hex}`), "null")
    })
  }

  for (const { name, hex, record } of guestVectors) {
    it(`writes ${name} as the vector says`, () => {
      assert.strictEqual(answerTo(`encode ${command(record)}`), hex)
    })
  }
})
