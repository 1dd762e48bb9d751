/** UDP over the channel, between a program and a host that sends what it likes. */
import { assert, describe, it } from "@effect/vitest"
import { type GuestRecord, MAX_DATAGRAM_BYTES } from "../../src/wire/records.ts"
import { ADDRESS, guestsOfThisFile } from "./guests.ts"
import type { Conversation } from "./machine.ts"

const { perl } = guestsOfThisFile()

const bytesOf = (text: string) => new TextEncoder().encode(text)
const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes)
const PORT = 4000
/** What PID 1 keeps apart. */
const FLOWS = 1024

/** A socket that is bound to the address (`0.0.0.0` for any) before the program says so. */
const bound = (address: string) =>
  `use Socket; socket(S, PF_INET, SOCK_DGRAM, 0) or die; setsockopt(S, SOL_SOCKET, SO_RCVBUF, 1 << 20);
   bind(S, pack_sockaddr_in(${PORT}, inet_aton("${address}"))) or die; print "bound\\n";`
const ECHO = `while (defined($from = recv(S, $bytes, 65535, 0))) { send(S, $bytes, 0, $from) }`
/** Answers with whom it sees, and what was sent. */
const TELL = `while (defined($from = recv(S, $bytes, 65535, 0))) {
  ($port, $address) = unpack_sockaddr_in($from); send(S, inet_ntoa($address) . " $port $bytes", 0, $from) }`

const echo = async (conversation: Conversation, flow: number, bytes: Uint8Array) => {
  conversation.datagram(flow, PORT, bytes)
  return await conversation.reply(flow)
}

/** Datagrams that found no room in the guest, as it says. */
const dropsIn = (records: ReadonlyArray<GuestRecord>) =>
  records.reduce((sum, record) => sum + (record.kind === "dropped" ? record.datagrams : 0), 0)

describe("a program that takes datagrams", () => {
  it("is reached at any address and at the guest's own, and sees each client as a port of that address", async () => {
    for (const address of ["0.0.0.0", ADDRESS]) {
      const { conversation } = await perl(bound(address) + TELL)
      await conversation.output("bound")
      const [one, two] = [
        textOf(await echo(conversation, 1, bytesOf("one"))),
        textOf(await echo(conversation, 2, bytesOf("two")))
      ]
      assert.match(one, new RegExp(`^${ADDRESS} \\d+ one$`, "u"))
      assert.match(two, new RegExp(`^${ADDRESS} \\d+ two$`, "u"))
      assert.notStrictEqual(one.split(" ")[1], two.split(" ")[1])
      // above what the kernel gives out to programs
      assert.isAtLeast(Number(one.split(" ")[1]), 61_000)
      assert.strictEqual(textOf(await echo(conversation, 1, bytesOf("one"))), one)
    }
  })

  it("is not reached when it listens on loopback alone, as over TCP", async () => {
    const { conversation } = await perl(bound("127.0.0.1") + ECHO)
    await conversation.output("bound")
    conversation.datagram(1, PORT, bytesOf("nobody hears it"))
    assert.strictEqual(await conversation.probe(PORT), "refused")
    assert.deepStrictEqual(conversation.records, [])
  })

  it("gets and gives datagrams of every size and content, the largest and what looks like a reset among them", async () => {
    const { conversation } = await perl(bound("0.0.0.0") + ECHO)
    await conversation.output("bound")
    const contents = [
      new Uint8Array(0),
      new Uint8Array(16).fill(0xff),
      new Uint8Array(1_200).fill(0x0a),
      Uint8Array.from({ length: MAX_DATAGRAM_BYTES }, (_, index) => (index * 31) >> 3),
      new Uint8Array(MAX_DATAGRAM_BYTES).fill(0xff)
    ]
    for (const [index, bytes] of contents.entries()) {
      assert.deepStrictEqual(await echo(conversation, index + 1, bytes), bytes, `content ${index}`)
    }
    for (const bytes of contents) assert.deepStrictEqual(await echo(conversation, 9, bytes), bytes)
  })

  it("may open its port late, close it, and have it again: its clients stay who they are", async () => {
    const { conversation } = await perl(
      `print "waits\\n"; sleep 2; ${bound("0.0.0.0")}
       $from = recv(S, $bytes, 65535, 0); send(S, "first $bytes", 0, $from); close S;
       print "closed\\n"; sleep 2; ${bound("0.0.0.0")} ${ECHO}`
    )
    await conversation.output("waits")
    conversation.datagram(1, PORT, bytesOf("too early"))
    conversation.datagram(1, PORT, bytesOf("too early"))
    await conversation.output("bound")
    assert.strictEqual(textOf(await echo(conversation, 1, bytesOf("now"))), "first now")
    await conversation.output("closed")
    conversation.datagram(1, PORT, bytesOf("between"))
    await conversation.output("bound")
    assert.strictEqual(textOf(await echo(conversation, 1, bytesOf("again"))), "again")
  })

  it("has so many clients at a time: one more takes the place of who was silent for the longest", async () => {
    const { conversation } = await perl(bound("0.0.0.0") + TELL)
    await conversation.output("bound")
    const portOf = async (flow: number) => textOf(await echo(conversation, flow, bytesOf("?"))).split(" ")[1]
    const ports = new Map<number, string | undefined>()
    for (let flow = 1; flow <= FLOWS; flow++) ports.set(flow, await portOf(flow))
    assert.strictEqual(new Set(ports.values()).size, FLOWS)
    assert.strictEqual(await portOf(1), ports.get(1))
    // the second is who was silent for the longest now
    await portOf(FLOWS + 1)
    assert.strictEqual(await portOf(1), ports.get(1))
    assert.strictEqual(await portOf(3), ports.get(3))
    assert.notStrictEqual(await portOf(2), ports.get(2))
  })

  it("sees a client anew when the host has closed its flow, or has come back", async () => {
    const { conversation, machine } = await perl(bound("0.0.0.0") + TELL)
    await conversation.output("bound")
    const first = textOf(await echo(conversation, 1, bytesOf("?")))
    conversation.send({ kind: "close-flow", flow: 1 })
    conversation.send({ kind: "close-flow", flow: 77 })
    const second = textOf(await echo(conversation, 1, bytesOf("?")))
    assert.notStrictEqual(second, first)
    conversation.close()
    const next = await machine.greet()
    const third = textOf(await echo(next, 1, bytesOf("?")))
    assert.notStrictEqual(third, second)
    await next.hello()
    assert.notStrictEqual(textOf(await echo(next, 1, bytesOf("?"))), third)
  })

  it("may flood the host: its log arrives whole, so do later answers, and what is dropped is counted", async () => {
    const { conversation } = await perl(
      `${bound("0.0.0.0")} $large = "x" x 60000;
       while (defined($from = recv(S, $bytes, 65535, 0))) {
         if ($bytes ne "flood") { send(S, $bytes, 0, $from); next }
         for $i (1 .. 300) { send(S, $large, 0, $from); print "line $i\\n" } print "done\\n" }`
    )
    await conversation.output("bound")
    const lines = [...Array.from({ length: 300 }, (_, index) => `line ${index + 1}`), "done"]
    let rounds = 0
    while (dropsIn(conversation.records) === 0) {
      rounds++
      conversation.datagram(1, PORT, bytesOf("flood"))
      // a host that reads nothing for a while: the more often, the surer that something was in its way
      conversation.socket.pause()
      await new Promise((resolve) => setTimeout(resolve, 500))
      conversation.socket.resume()
      assert.deepStrictEqual((await conversation.output("done")).trim().split("\n"), lines)
      assert.strictEqual(textOf(await echo(conversation, 2, bytesOf("still here"))), "still here")
    }
    const got = conversation.records.filter((record) => record.kind === "reply").length
    assert.isAbove(got, 0)
    assert.isAtMost(got + dropsIn(conversation.records), 300 * rounds)
  })

  it("may be flooded: it logs, is probed and answers others meanwhile", async () => {
    const { conversation } = await perl(
      `if (fork() == 0) { for $i (1 .. 500) { print "line $i\\n"; select(undef, undef, undef, 0.004) } print "done\\n"; exit }
       ${bound("0.0.0.0")} ${ECHO}`
    )
    await conversation.output("bound")
    const load = new Uint8Array(30_000).fill(0x61)
    let stop = false
    const flood = (async () => {
      for (let count = 0; !stop; count++) {
        conversation.datagram(100 + (count % 50), PORT + 1, load)
        if (conversation.socket.writableLength > 262_144)
          await new Promise<void>((resolve) => conversation.socket.once("drain", resolve))
      }
    })()
    assert.strictEqual(await conversation.probe(PORT), "refused")
    assert.strictEqual(textOf(await echo(conversation, 1, bytesOf("in between"))), "in between")
    let printed = ""
    while (!printed.includes("done")) printed += await conversation.output("\n")
    stop = true
    await flood
    assert.isTrue(printed.includes("line 500\n"))
    assert.isFalse(
      conversation.records.some((record) => record.kind === "event" && record.event?.kind === "gap")
    )
  })
})
