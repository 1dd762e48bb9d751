/** Frames as a guest sends and gets them. */

const bytesOf = (address: string) => address.split(".").map(Number)
const macBytes = (mac: string) => mac.split(":").map((byte) => Number.parseInt(byte, 16))
const word = (value: number) => [(value >> 8) & 0xff, value & 0xff]

const sum = (bytes: ReadonlyArray<number>): number => {
  let total = 0
  for (let at = 0; at < bytes.length; at += 2) total += ((bytes[at] ?? 0) << 8) + (bytes[at + 1] ?? 0)
  while (total > 0xffff) total = (total & 0xffff) + Math.floor(total / 0x10000)
  return 0xffff - total
}

export interface Datagram {
  readonly from: { readonly mac: string; readonly address: string; readonly port: number }
  readonly to: { readonly mac: string; readonly address: string; readonly port: number }
  readonly text: string
}

/** A datagram of UDP over IPv4 in an Ethernet frame, in hexadecimal digits. */
export const udpFrame = ({ from, to, text }: Datagram): string => {
  const body = [...Buffer.from(text)]
  const udp = [...word(from.port), ...word(to.port), ...word(8 + body.length), 0, 0, ...body]
  const head = (checksum: number) => [
    0x45,
    0,
    ...word(20 + udp.length),
    0,
    0,
    0x40,
    0,
    64,
    17,
    ...word(checksum),
    ...bytesOf(from.address),
    ...bytesOf(to.address)
  ]
  return Buffer.from([
    ...macBytes(to.mac),
    ...macBytes(from.mac),
    0x08,
    0x00,
    ...head(sum(head(0))),
    ...udp
  ]).toString("hex")
}

const v6Bytes = (address: string): ReadonlyArray<number> => {
  const [before = "", after = ""] = address.split("::")
  const groups = (text: string) =>
    text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16))
  const [left, right] = [groups(before), groups(after)]
  const middle = Array.from({ length: 8 - left.length - right.length }, () => 0)
  return [...left, ...middle, ...right].flatMap(word)
}

/** The same over IPv6; addresses are written with `::`. */
export const udp6Frame = ({ from, to, text }: Datagram): string => {
  const body = [...Buffer.from(text)]
  const length = 8 + body.length
  const ends = [...v6Bytes(from.address), ...v6Bytes(to.address)]
  const udp = (checksum: number) => [
    ...word(from.port),
    ...word(to.port),
    ...word(length),
    ...word(checksum),
    ...body
  ]
  const checksum = sum([...ends, 0, 0, ...word(length), 0, 0, 0, 17, ...udp(0)])
  return Buffer.from([
    ...macBytes(to.mac),
    ...macBytes(from.mac),
    0x86,
    0xdd,
    0x60,
    0,
    0,
    0,
    ...word(length),
    17,
    64,
    ...ends,
    ...udp(checksum)
  ]).toString("hex")
}

/** Who has this address? */
export const arpRequest = (mac: string, address: string, asked: string): string =>
  Buffer.from([
    ...macBytes("ff:ff:ff:ff:ff:ff"),
    ...macBytes(mac),
    0x08,
    0x06,
    0,
    1,
    8,
    0,
    6,
    4,
    0,
    1,
    ...macBytes(mac),
    ...bytesOf(address),
    0,
    0,
    0,
    0,
    0,
    0,
    ...bytesOf(asked)
  ]).toString("hex")

export type Got =
  | { readonly kind: "datagram"; readonly from: string; readonly port: number; readonly text: string }
  /** ICMP, destination unreachable: code 13 is "administratively prohibited". */
  | { readonly kind: "unreachable"; readonly code: number }
  | { readonly kind: "arp-answer"; readonly address: string }
  | { readonly kind: "other" }

/** What a frame that came for the guest is. */
export const readFrame = (hex: string): Got => {
  const bytes = Buffer.from(hex, "hex")
  const type = bytes.readUInt16BE(12)
  if (type === 0x0806 && bytes.readUInt16BE(20) === 2) {
    return { kind: "arp-answer", address: [...bytes.subarray(28, 32)].join(".") }
  }
  if (type !== 0x0800) return { kind: "other" }
  const body = 14 + (bytes.readUInt8(14) & 0xf) * 4
  const from = [...bytes.subarray(26, 30)].join(".")
  const protocol = bytes.readUInt8(23)
  if (protocol === 17) {
    const end = body + bytes.readUInt16BE(body + 4)
    return {
      kind: "datagram",
      from,
      port: bytes.readUInt16BE(body),
      text: bytes.subarray(body + 8, end).toString()
    }
  }
  return protocol === 1 && bytes.readUInt8(body) === 3
    ? { kind: "unreachable", code: bytes.readUInt8(body + 1) }
    : { kind: "other" }
}
