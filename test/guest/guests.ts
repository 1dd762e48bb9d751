/** Guests for the tests of one file: each booted with what a test gives it, all ended after the test. */
import { afterAll, afterEach, assert } from "@effect/vitest"
import type { BootSpec } from "../../src/services/Guest.ts"
import { bootSpec } from "../support/boot-spec.ts"
import { image, makeWorkshop } from "./drives.ts"
import { Machine } from "./machine.ts"

export const ADDRESS = "10.201.0.2"

export interface Drives {
  readonly layers?: ReadonlyArray<string>
  readonly volume?: string
}

export const guestsOfThisFile = () => {
  const workshop = makeWorkshop()
  const machines: Array<Machine> = []
  afterEach(() => Promise.all(machines.splice(0).map((machine) => machine.end())))
  afterAll(workshop.remove)

  const boot = (drives: Drives = {}) => {
    const machine = new Machine({
      ...image(),
      layers: drives.layers ?? [],
      volume: drives.volume ?? workshop.volume()
    })
    machines.push(machine)
    return machine
  }

  /** Boots, hands the spec over, and waits for the program to run. */
  const run = async (changes: Partial<BootSpec>, drives: Drives = {}) => {
    const machine = boot(drives)
    const conversation = await machine.greet()
    const spec = bootSpec({
      network: { address: ADDRESS, prefixLength: 24, gateway: "10.201.0.1" },
      hostTime: Date.now(),
      ...changes
    })
    assert.strictEqual((await conversation.boot(spec)).outcome, "taken")
    await conversation.event("started")
    return { machine, conversation }
  }

  return {
    workshop,
    boot,
    run,
    /** A guest that runs this Perl. */
    perl: (script: string, drives: Drives = {}) =>
      run({ program: "/usr/bin/perl", args: ["-e", `$| = 1; ${script}`] }, drives)
  }
}
