/** Certificates made on the spot, so that no key lies in the repository and none runs out. */
import { createPublicKey, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto"

export interface Issued {
  /** PEM. */
  readonly certificate: string
  /** PEM. */
  readonly key: string
}

export interface Authority extends Issued {
  readonly name: string
}

const der = (tag: number, ...contents: ReadonlyArray<Uint8Array>): Buffer => {
  const content = Buffer.concat(contents)
  if (content.length < 128) return Buffer.concat([Buffer.from([tag, content.length]), content])
  const length = Buffer.from(content.length.toString(16).padStart(4, "0"), "hex")
  return Buffer.concat([Buffer.from([tag, 0x82]), length, content])
}

const SEQUENCE = 0x30
const SET = 0x31
const sequence = (...parts: ReadonlyArray<Uint8Array>) => der(SEQUENCE, ...parts)
const oid = (hex: string) => der(0x06, Buffer.from(hex, "hex"))
const bits = (bytes: Uint8Array) => der(0x03, Buffer.from([0]), bytes)
const octets = (bytes: Uint8Array) => der(0x04, bytes)
const text = (value: string) => der(0x0c, Buffer.from(value))
const truth = der(0x01, Buffer.from([0xff]))
const time = (at: Date) => der(0x18, Buffer.from(`${at.toISOString().replace(/\D/gu, "").slice(0, 14)}Z`))

const ECDSA_WITH_SHA256 = sequence(oid("2a8648ce3d040302"))
const COMMON_NAME = oid("550403")
const BASIC_CONSTRAINTS = oid("551d13")
const ALTERNATIVE_NAMES = oid("551d11")
const DNS_NAME = 0x82

const distinguished = (name: string) => sequence(der(SET, sequence(COMMON_NAME, text(name))))
const pem = (label: string, bytes: Buffer) =>
  `-----BEGIN ${label}-----\n${bytes.toString("base64").replace(/(.{64})/gu, "$1\n")}\n-----END ${label}-----\n`

const HOUR_MS = 3_600_000

const issue = (
  subject: string,
  options: {
    readonly issuer: string
    readonly issuerKey?: KeyObject | string
    readonly authority?: boolean
    readonly names?: ReadonlyArray<string>
    readonly validUntil?: Date
  }
): Issued => {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" })
  const names = (options.names ?? []).map((name) => der(DNS_NAME, Buffer.from(name)))
  const extensions = [
    ...(options.authority === true ? [sequence(BASIC_CONSTRAINTS, truth, octets(sequence(truth)))] : []),
    ...(names.length > 0 ? [sequence(ALTERNATIVE_NAMES, octets(sequence(...names)))] : [])
  ]
  const validUntil = options.validUntil ?? new Date(Date.now() + HOUR_MS)
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([0x10]), randomBytes(8)])),
    ECDSA_WITH_SHA256,
    distinguished(options.issuer),
    sequence(time(new Date(Date.now() - 24 * HOUR_MS)), time(validUntil)),
    distinguished(subject),
    createPublicKey(publicKey.export({ type: "spki", format: "pem" })).export({
      type: "spki",
      format: "der"
    }),
    ...(extensions.length > 0 ? [der(0xa3, sequence(...extensions))] : [])
  )
  const signature = sign("sha256", body, options.issuerKey ?? privateKey)
  return {
    certificate: pem("CERTIFICATE", sequence(body, ECDSA_WITH_SHA256, bits(signature))),
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString()
  }
}

/** A certificate that issues others. */
export const makeAuthority = (name: string): Authority => ({
  name,
  ...issue(name, { issuer: name, authority: true })
})

/** A certificate for these names, by the authority or its own. */
export const makeCertificate = (
  names: ReadonlyArray<string>,
  by?: Authority,
  options: { readonly validUntil?: Date } = {}
): Issued => {
  const [subject = "nobody"] = names
  return issue(subject, {
    ...options,
    names,
    issuer: by?.name ?? subject,
    ...(by === undefined ? {} : { issuerKey: by.key })
  })
}
