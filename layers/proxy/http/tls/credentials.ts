/** The certificate, its key and the clients' authorities: read, and found fit to serve with. */
import { createHash, createPrivateKey, type KeyObject, constants as SSL, X509Certificate } from "node:crypto"
import { constants } from "node:fs"
import { createSecureContext, type SecureContextOptions } from "node:tls"
import { Effect, Schema, type Scope } from "effect"
import { openFile } from "../../../files/durable.ts"
import { type FileProblem, onFile } from "../../../files/problem.ts"

/** `proxy.http.tls` of the configuration; absolute paths to PEM files. */
export interface TlsFiles {
  readonly certificate: string
  readonly key: string
  /** When set, only clients with a certificate of one of these authorities get through. */
  readonly clientCa?: string | undefined
}

export interface Credentials {
  readonly secureContext: SecureContextOptions
  /** The same for the same contents. */
  readonly digest: string
  /** Whom the certificate is for, and until when: for the log. */
  readonly summary: string
  /** The certificate's last moment, in ms since 1970. */
  readonly validUntil: number
}

export class CredentialsProblem extends Schema.TaggedError<CredentialsProblem>()("CredentialsProblem", {
  key: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `${this.key} cannot be used: ${this.reason}`
  }
}

/** More than any chain or pool needs. Bytes. */
const MAX_FILE_BYTES = 4 * 2 ** 20
const MAX_NAMES = 256

/** Reads all of the files and checks that they can be served with together. */
export const readCredentials = (files: TlsFiles): Effect.Effect<Credentials, CredentialsProblem> =>
  Effect.gen(function* () {
    const certificate = yield* readPem("proxy.http.tls.certificate", files.certificate)
    const key = yield* readPem("proxy.http.tls.key", files.key)
    const pool =
      files.clientCa === undefined
        ? undefined
        : yield* readPem("proxy.http.tls.client_ca.certificate", files.clientCa)
    const [leaf] = yield* certificatesIn(certificate)
    const privateKey = yield* privateKeyIn(key)
    if (pool !== undefined) yield* certificatesIn(pool)
    if (!leaf.checkPrivateKey(privateKey)) {
      return yield* problem(key, `does not belong to the first certificate in ${files.certificate}`)
    }
    const secureContext: SecureContextOptions = {
      cert: certificate.text,
      key: key.text,
      // a renegotiation costs a stranger nothing and us much
      secureOptions: SSL.SSL_OP_NO_RENEGOTIATION,
      ...(pool === undefined ? {} : { ca: pool.text })
    }
    yield* Effect.try({
      try: () => createSecureContext(secureContext),
      catch: (error) => problem(certificate, `is not taken by TLS: ${reasonOf(error)}`)
    })
    return {
      secureContext,
      digest: digestOf(certificate.text, key.text, pool?.text ?? ""),
      summary: `${namesOf(leaf)}, valid until ${leaf.validToDate.toISOString()}`,
      validUntil: leaf.validToDate.getTime()
    }
  })

/** One of the files. */
interface Pem {
  readonly key: string
  readonly file: string
  readonly text: string
}

/** `what`: what is wrong with the file, as the rest of a sentence that begins with its path. */
const problem = ({ key, file }: Omit<Pem, "text">, what: string) =>
  new CredentialsProblem({ key, reason: `${file} ${what}` })

const readPem = (key: string, file: string): Effect.Effect<Pem, CredentialsProblem> =>
  readText(file).pipe(
    Effect.scoped,
    Effect.mapError((failure) =>
      typeof failure === "string"
        ? problem({ key, file }, failure)
        : new CredentialsProblem({ key, reason: failure.reason })
    ),
    Effect.map((text) => ({ key, file, text }))
  )

const readText = (file: string): Effect.Effect<string, FileProblem | string, Scope.Scope> =>
  Effect.gen(function* () {
    // Without O_NONBLOCK a FIFO would hold the daemon until somebody writes into it.
    const handle = yield* openFile(file, constants.O_RDONLY | constants.O_NONBLOCK)
    const stat = yield* onFile(file, () => handle.stat())
    if (!stat.isFile()) return yield* Effect.fail("is not a regular file")
    if (stat.size > MAX_FILE_BYTES) return yield* Effect.fail(`is larger than ${MAX_FILE_BYTES} bytes`)
    return yield* onFile(file, () => handle.readFile("latin1"))
  })

const CERTIFICATE_BEGIN = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/gu
const CERTIFICATE =
  /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^-]*-----END (?:X509 |TRUSTED )?CERTIFICATE-----/gu

/** Every certificate of the file: one that cannot be read must not be left out without a word. */
const certificatesIn = (
  pem: Pem
): Effect.Effect<readonly [X509Certificate, ...Array<X509Certificate>], CredentialsProblem> =>
  Effect.gen(function* () {
    const begun = pem.text.match(CERTIFICATE_BEGIN)?.length ?? 0
    const blocks = pem.text.match(CERTIFICATE) ?? []
    if (blocks.length < begun) {
      return yield* problem(pem, `begins ${begun} certificates, but ends only ${blocks.length}`)
    }
    const certificates = yield* Effect.forEach(blocks, (block, index) =>
      Effect.try({
        try: () => new X509Certificate(block),
        catch: (error) => problem(pem, `cannot be read at its certificate ${index + 1}: ${reasonOf(error)}`)
      })
    )
    const [first, ...others] = certificates
    if (first === undefined) return yield* problem(pem, "holds no certificate")
    return [first, ...others] as const
  })

const privateKeyIn = (pem: Pem): Effect.Effect<KeyObject, CredentialsProblem> => {
  if (!/-----BEGIN [A-Z ]*PRIVATE KEY-----/u.test(pem.text)) {
    return Effect.fail(problem(pem, "holds no private key"))
  }
  if (/ENCRYPTED/u.test(pem.text)) {
    return Effect.fail(problem(pem, "holds an encrypted key; it must be stored without a passphrase"))
  }
  return Effect.try({
    try: () => createPrivateKey(pem.text),
    catch: (error) => problem(pem, `holds a key that cannot be read: ${reasonOf(error)}`)
  })
}

const namesOf = (certificate: X509Certificate): string =>
  (certificate.subjectAltName ?? certificate.subject).replaceAll("\n", ", ").slice(0, MAX_NAMES)

/** What OpenSSL says, without its codes. */
const reasonOf = (error: unknown): string => {
  const text = error instanceof Error ? error.message : String(error)
  return (text.split(":").at(-1) ?? text).trim()
}

const digestOf = (...texts: ReadonlyArray<string>): string => {
  const hash = createHash("sha256")
  for (const text of texts) hash.update(createHash("sha256").update(text).digest())
  return hash.digest("hex")
}
