/** Why a host that is laid out could not be started. */
import { createPrivateKey, X509Certificate } from "node:crypto"
import { createSocket } from "node:dgram"
import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { hostEnvFile, namesSetIn, neededVariables } from "../../src/config/host-env.ts"
import type { HostConfig } from "../../src/config/schema.ts"
import { onFile } from "../files/problem.ts"
import { textOf } from "./files.ts"
import { type Place, placed } from "./place.ts"

type Reasons = ReadonlyArray<string>

const secrets = (place: Place, config: HostConfig, configFile: string) => {
  const file = hostEnvFile(configFile)
  return Effect.map(textOf(place, file), (text): Reasons => {
    const set = namesSetIn(text ?? "")
    return neededVariables(config)
      .filter(({ name }) => !set.has(name))
      .map(({ because, name }) => `${name} has no value in ${file}: it is needed, because ${because}`)
  })
}

const read = (place: Place, file: string, key: string) => {
  const at = placed(place, file)
  return onFile(at, () => fs.readFile(at, "utf8")).pipe(Effect.mapError(({ reason }) => `${reason} (${key})`))
}

const clause = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/gu

/** The certificates of a PEM file, all of those that it begins. */
const certificates = (text: string, file: string, key: string) => {
  const blocks = text.match(CERTIFICATE) ?? []
  const begun = text.match(/-----BEGIN CERTIFICATE-----/gu)?.length ?? 0
  if (begun === 0) return Effect.fail(`${file} holds no PEM certificate (${key})`)
  if (blocks.length < begun) return Effect.fail(`${file} is cut off in one of its certificates (${key})`)
  return Effect.try({
    try: () => blocks.map((block) => new X509Certificate(block)),
    catch: (error) => `${file} holds what is no certificate: ${clause(error)} (${key})`
  })
}

const readCertificates = (place: Place, file: string, key: string) =>
  Effect.flatMap(read(place, file, key), (text) => certificates(text, file, key))

const tlsFiles = (place: Place, { proxy }: HostConfig): Effect.Effect<Reasons> => {
  const tls = proxy?.http?.tls
  if (tls === undefined) return Effect.succeed([])
  const pair = Effect.gen(function* () {
    const key = "proxy.http.tls.key"
    const chain = yield* readCertificates(place, tls.certificate, "proxy.http.tls.certificate")
    const text = yield* read(place, tls.key, key)
    const secret = yield* Effect.try({
      try: () => createPrivateKey(text),
      // what the library says could quote the key
      catch: () => `${tls.key} holds no private key in PEM that can be read without a password (${key})`
    })
    if (chain[0]?.checkPrivateKey(secret) === false)
      return yield* Effect.fail(`${tls.key} is not the key of ${tls.certificate} (${key})`)
  })
  const { client_ca } = tls
  const pool =
    client_ca === undefined
      ? Effect.void
      : readCertificates(place, client_ca.certificate, "proxy.http.tls.client_ca.certificate")
  const checks: ReadonlyArray<Effect.Effect<unknown, string>> = [pair, pool]
  return Effect.forEach(checks, (check) =>
    Effect.match(check, { onFailure: (reason): Reasons => [reason], onSuccess: (): Reasons => [] })
  ).pipe(Effect.map((all) => all.flat()))
}

/** Whether this host has the address: a socket can be bound to it, on any port. */
const isOurs = (address: string): Effect.Effect<boolean> =>
  Effect.callback((resume) => {
    const socket = createSocket(address.includes(":") ? "udp6" : "udp4")
    const answer = (ours: boolean) => {
      socket.close()
      resume(Effect.succeed(ours))
    }
    socket.once("error", () => answer(false))
    socket.bind({ address, port: 0, exclusive: true }, () => answer(true))
  })

const addresses = ({ metrics, proxy }: HostConfig) =>
  Effect.forEach(
    [
      ["proxy.http.listen_address", proxy?.http?.listen_address],
      ["proxy.raw.listen_address", proxy?.raw?.listen_address],
      ["metrics.listen_address", metrics?.listen_address]
    ] as const,
    ([key, address]) =>
      address === undefined
        ? Effect.succeed<Reasons>([])
        : Effect.map(
            isOurs(address),
            (ours): Reasons => (ours ? [] : [`${key} is ${address}, which is not an address of this host`])
          )
  ).pipe(Effect.map((all) => all.flat()))

/** Everything that speaks against starting the host, each as a sentence with its key or file. */
export const reasonsNotToStart = (place: Place, config: HostConfig, configFile: string) =>
  Effect.all([secrets(place, config, configFile), tlsFiles(place, config), addresses(config)]).pipe(
    Effect.map((all): Reasons => all.flat())
  )
