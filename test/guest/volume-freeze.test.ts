/** A volume that is frozen while its program runs. */
import { spawnSync } from "node:child_process"
import { copyFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { type GuestRecord, HostType } from "../../src/wire/records.ts"
import { superblock } from "./drives.ts"
import { guestsOfThisFile } from "./guests.ts"
import type { Conversation } from "./machine.ts"

const { workshop, boot, perl, run } = guestsOfThisFile()

const LEASE_MS = 60_000
/** Says so when it is asked to write (a datagram of any content), and when it has written. */
const WRITES_WHEN_ASKED = `use Socket; socket(S, PF_INET, SOCK_DGRAM, 0); bind(S, pack_sockaddr_in(4000, INADDR_ANY)) or die;
  print "ready\\n";
  while (recv(S, $name, 100, 0)) {
    print "writes $name\\n"; open(F, ">", "/srv/$name") or die; print F "$name\\n"; close F; print "wrote $name\\n" }`

const receiptOf = async (conversation: Conversation, of: number) => {
  const record = await conversation.next(
    `receipt of ${of}`,
    (candidate): candidate is Extract<GuestRecord, { readonly kind: "receipt" }> =>
      candidate.kind === "receipt" && candidate.of === of
  )
  return record.outcome
}
const freezeVolume = (conversation: Conversation, leaseMs = LEASE_MS) => {
  conversation.send({ kind: "freeze-volume", leaseMs })
  return receiptOf(conversation, HostType.freezeVolume)
}
const thawVolume = (conversation: Conversation) => {
  conversation.send({ kind: "thaw-volume" })
  return receiptOf(conversation, HostType.thawVolume)
}
const freeze = (conversation: Conversation) => {
  conversation.send({ kind: "freeze", leaseMs: LEASE_MS })
  return receiptOf(conversation, HostType.freeze)
}
const thaw = (conversation: Conversation) => {
  conversation.send({ kind: "thaw", hostTime: Date.now() })
  return receiptOf(conversation, HostType.thaw)
}
const write = (conversation: Conversation, name: string) =>
  conversation.datagram(1, 4000, new TextEncoder().encode(name))

/** What a copy of the volume's device holds, taken now; and what `e2fsck` found wrong with it. */
const copyOf = (volume: string) => {
  const copy = join(workshop.folder, "copy.ext4")
  copyFileSync(volume, copy)
  const check = spawnSync("e2fsck", ["-fn", copy], { encoding: "utf8" })
  const cat = (path: string) =>
    spawnSync("debugfs", ["-R", `cat /upper${path}`, copy], { encoding: "utf8" }).stdout
  return { check, cat, superblock: superblock(copy) }
}

describe("a guest whose volume is frozen", () => {
  it("has all that was written on its disk, whole, and goes on with whatever does not write", async () => {
    const volume = workshop.volume()
    const { conversation } = await perl(
      `open(F, ">", "/srv/unsynced"); print F "kept\\n"; close F; ${WRITES_WHEN_ASKED}`,
      { volume }
    )
    await conversation.output("ready")
    assert.strictEqual(await freezeVolume(conversation), "taken")
    const { check, cat, superblock: state } = copyOf(volume)
    assert.strictEqual(check.status, 0, check.stdout)
    assert.notInclude(state, "needs_recovery")
    assert.strictEqual(cat("/srv/unsynced"), "kept\n")

    write(conversation, "held")
    await conversation.output("writes held")
    assert.strictEqual(await conversation.probe(4001), "refused")
    conversation.send({ kind: "usage", id: 7 })
    const used = await conversation.next(
      "usage",
      (record): record is Extract<GuestRecord, { readonly kind: "usage-result" }> =>
        record.kind === "usage-result"
    )
    assert.isAbove(used.usage.volumeTotalBytes, 0)
    assert.isFalse(
      conversation.records.some((record) => record.kind === "event"),
      "it has not written"
    )
    assert.strictEqual(copyOf(volume).cat("/srv/held"), "")

    assert.strictEqual(await thawVolume(conversation), "taken")
    await conversation.output("wrote held")
    assert.strictEqual(await thawVolume(conversation), "not-now")
    // and again
    assert.strictEqual(await freezeVolume(conversation), "taken")
    assert.strictEqual(copyOf(volume).cat("/srv/held"), "held\n")
    assert.strictEqual(await thawVolume(conversation), "taken")
  })

  it("thaws it by itself when its lease is over, and says afterwards that it did not hold", async () => {
    const { conversation, machine } = await perl(WRITES_WHEN_ASKED)
    await conversation.output("ready")
    assert.strictEqual(await freezeVolume(conversation, 1_000), "taken")
    write(conversation, "late")
    await conversation.output("writes late")
    await conversation.output("wrote late")
    assert.strictEqual(await thawVolume(conversation), "not-now")
    assert.include(machine.console, "the volume is thawed without the host")
    assert.strictEqual(await freezeVolume(conversation), "taken")
    assert.strictEqual(await thawVolume(conversation), "taken")
  })

  it("is not put to sleep meanwhile, nor is its volume frozen while it is about to sleep", async () => {
    const { conversation } = await perl(WRITES_WHEN_ASKED)
    await conversation.output("ready")
    assert.strictEqual(await freezeVolume(conversation), "taken")
    assert.strictEqual(await freeze(conversation), "not-now")
    assert.strictEqual(await freezeVolume(conversation), "not-now")
    assert.strictEqual(await thawVolume(conversation), "taken")

    assert.strictEqual(await freeze(conversation), "taken")
    assert.strictEqual(await freezeVolume(conversation), "not-now")
    assert.strictEqual(await thawVolume(conversation), "not-now")
    assert.strictEqual(await thaw(conversation), "taken")
    write(conversation, "after")
    await conversation.output("wrote after")
  })

  it("keeps it so for a host that comes back, which may thaw it", async () => {
    const { conversation, machine } = await perl(WRITES_WHEN_ASKED)
    await conversation.output("ready")
    assert.strictEqual(await freezeVolume(conversation), "taken")
    conversation.close()
    const next = await machine.greet()
    write(next, "held")
    await next.output("writes held")
    assert.strictEqual(await freezeVolume(next), "not-now")
    assert.strictEqual(await thawVolume(next), "taken")
    await next.output("wrote held")
  })

  it("answers both who asks to freeze it and who thaws it before it is frozen", async () => {
    const { conversation } = await perl(WRITES_WHEN_ASKED)
    await conversation.output("ready")
    for (let round = 0; round < 20; round++) {
      conversation.send({ kind: "freeze-volume", leaseMs: LEASE_MS })
      conversation.send({ kind: "thaw-volume" })
      const outcomes = [
        await receiptOf(conversation, HostType.freezeVolume),
        await receiptOf(conversation, HostType.thawVolume)
      ]
      assert.strictEqual(outcomes[0], outcomes[1])
      write(conversation, `round${round}`)
      await conversation.output(`wrote round${round}`)
    }
  })

  it("starts its program again, and stops in order, with the volume clean", async () => {
    const volume = workshop.volume()
    const { conversation, machine } = await run(
      {
        args: ["-c", "echo runs; sleep 2; exec sleep 100000 < /srv/absent"],
        program: "/bin/sh",
        restartPolicy: {
          maxRestarts: 1,
          initialBackoffMs: 10,
          maxBackoffMs: 10,
          backoffFactor: 1,
          resetAfterMs: 600_000
        }
      },
      { volume }
    )
    await conversation.output("runs")
    assert.strictEqual(await freezeVolume(conversation), "taken")
    await conversation.event("restarting")
    await conversation.event("started")
    conversation.send({ kind: "shutdown", graceMs: 10_000 })
    assert.strictEqual(await machine.exited, 0)
    assert.notInclude(superblock(volume), "needs_recovery")
    assert.match(superblock(volume), /Filesystem state: +clean/u)
  })

  it("gives up, in order, when the restarts of its program are used up meanwhile", async () => {
    const volume = workshop.volume()
    const { conversation, machine } = await run(
      { program: "/bin/sh", args: ["-c", "echo runs; sleep 2"] },
      { volume }
    )
    await conversation.output("runs")
    assert.strictEqual(await freezeVolume(conversation), "taken")
    await conversation.event("failed")
    assert.strictEqual(await machine.exited, 0)
    assert.notInclude(superblock(volume), "needs_recovery")
  })

  it("does not freeze a volume before it has one", async () => {
    const conversation = await boot().greet()
    assert.strictEqual(await freezeVolume(conversation), "not-now")
    assert.strictEqual(await thawVolume(conversation), "not-now")
  })
})
