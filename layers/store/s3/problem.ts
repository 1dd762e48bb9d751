/** What an error of AWS's client stands for. */
import { Predicate } from "effect"
import {
  type Refusal,
  type StoreError,
  type StoreOperation,
  StoreRefused,
  StoreUnavailable,
  StoreUnusable
} from "../../../src/services/store-errors.ts"
import { endpointName, type S3Settings } from "./settings.ts"

/** Whom an error is about. */
export interface Request {
  readonly settings: S3Settings
  readonly operation: StoreOperation
  readonly objectKey: string
}

/** The store has no such object, or no such upload any more. */
export interface NotThere {
  readonly _tag: "NotThere"
  /** The store's word for it, such as `NoSuchKey`. */
  readonly code: string
}

export type S3Problem = StoreError | NotThere

const refusalOf: Readonly<Record<string, Refusal>> = {
  AccessDenied: "denied",
  AllAccessDisabled: "denied",
  AccountProblem: "denied",
  ExpiredToken: "credentials-expired",
  TokenRefreshRequired: "credentials-expired",
  ExpiredTokenException: "credentials-expired",
  InvalidAccessKeyId: "credentials-invalid",
  InvalidToken: "credentials-invalid",
  SignatureDoesNotMatch: "credentials-invalid",
  RequestTimeTooSkewed: "clock-skewed",
  NoSuchBucket: "no-such-bucket",
  PermanentRedirect: "wrong-region",
  TemporaryRedirect: "wrong-region",
  Redirect: "wrong-region",
  AuthorizationHeaderMalformed: "wrong-region",
  IllegalLocationConstraintException: "wrong-region",
  InvalidRegionName: "wrong-region"
}

/** The store's own words for what passes. */
const passing: ReadonlySet<string> = new Set([
  "RequestTimeout",
  "IncompleteBody",
  "BadDigest",
  "XAmzContentChecksumMismatch",
  "XAmzContentSHA256Mismatch",
  "OperationAborted",
  "InternalError",
  "InternalFailure"
])

const busy: ReadonlySet<string> = new Set([
  "SlowDown",
  "ServiceUnavailable",
  "Throttling",
  "ThrottlingException",
  "TooManyRequests",
  "RequestLimitExceeded",
  "BandwidthLimitExceeded"
])

const absent: ReadonlySet<string> = new Set(["NoSuchKey", "NotFound", "NoSuchUpload"])

const connection: Readonly<Record<string, string>> = {
  ECONNREFUSED: "it refuses connections",
  ECONNRESET: "the connection broke off",
  EPIPE: "the connection broke off",
  ENOTFOUND: "its name is not known to the resolver (AWS_ENDPOINT_URL, AWS_REGION)",
  EAI_AGAIN: "the resolver of this machine does not answer",
  ETIMEDOUT: "it does not answer in time",
  TimeoutError: "it does not answer in time",
  EHOSTUNREACH: "there is no route to it",
  ENETUNREACH: "there is no route to it"
}

const textOf = (value: unknown, name: string): string | undefined => {
  const found = Predicate.hasProperty(value, name) ? value[name] : undefined
  return typeof found === "string" && found !== "" ? found : undefined
}

const partOf = (value: unknown, name: string): unknown =>
  Predicate.hasProperty(value, name) ? value[name] : undefined

const statusOf = (error: unknown): number | undefined => {
  const status =
    partOf(partOf(error, "$metadata"), "httpStatusCode") ?? partOf(partOf(error, "$response"), "statusCode")
  return typeof status === "number" ? status : undefined
}

const REGION = /^[a-z0-9-]{1,40}$/u

/** The region that the answer names, which is whatever the store wrote: shown only when it is the name of one. */
const regionOf = (error: unknown): string | undefined => {
  const headers = partOf(partOf(error, "$response"), "headers")
  return [textOf(headers, "x-amz-bucket-region"), textOf(error, "Region")].find(
    (region) => region !== undefined && REGION.test(region)
  )
}

/** A foreign text as a clause: one line, short. */
const clipped = (text: string): string => {
  const line = text.replaceAll(/\s+/gu, " ").replaceAll(/\p{C}/gu, "").trim()
  return line.length > 160 ? `${line.slice(0, 160)}…` : line
}

/** By its status alone, for an answer without a body that says more. */
const codeOf = (error: unknown, status: number | undefined): string => {
  const name = textOf(error, "Code") ?? textOf(error, "code") ?? textOf(error, "name") ?? ""
  if (name !== "" && !/^(?:Error|Unknown|UnknownError|\d{3})$/u.test(name)) return name
  if (status === 301 || status === 307) return "PermanentRedirect"
  return status === 403 ? "AccessDenied" : ""
}

/** Puts an error of the client into a sentence. */
export const s3Problem = (request: Request, error: unknown): S3Problem => {
  const { objectKey, operation, settings } = request
  const status = statusOf(error)
  const code = codeOf(error, status)
  const unusable = (reason: string) => new StoreUnusable({ objectKey, operation, reason })
  const unavailable = (kind: StoreUnavailable["kind"], reason: string) =>
    new StoreUnavailable({ objectKey, operation, kind, reason, endpoint: endpointName(settings) })

  const refusal = refusalOf[code]
  if (refusal !== undefined) {
    const expectedRegion = refusal === "wrong-region" ? regionOf(error) : undefined
    const { bucket, region } = settings
    // A header that is malformed in another way than by its region.
    if (code === "AuthorizationHeaderMalformed" && expectedRegion === undefined) {
      return new StoreRefused({ objectKey, operation, bucket, region, refusal: "credentials-invalid" })
    }
    return new StoreRefused({
      objectKey,
      operation,
      bucket,
      region,
      refusal,
      ...(expectedRegion === undefined ? {} : { expectedRegion })
    })
  }
  if (busy.has(code) || status === 429 || status === 503) {
    return unavailable("busy", `the store at ${endpointName(settings)} is overloaded (${status ?? code})`)
  }
  if (passing.has(code) || (status !== undefined && status >= 500)) {
    const word = [status, code].filter((part) => part !== undefined && part !== "").join(" ")
    return unavailable("failing", `the store at ${endpointName(settings)} fails (${clipped(word)})`)
  }
  if (absent.has(code) || (status === 404 && code === "")) {
    return { _tag: "NotThere", code }
  }
  if (code === "PreconditionFailed" || status === 412) {
    return unusable("it was replaced in the store while it was being fetched")
  }
  if (status !== undefined && status >= 300) {
    const said = clipped(error instanceof Error ? error.message : "")
    return unusable(
      `the store answers ${status} ${clipped(code)}${said === "" || said === code ? "" : `: ${said}`}`
    )
  }
  if (/CERT|SELF_SIGNED|UNABLE_TO_VERIFY|ERR_TLS/u.test(code)) {
    return unusable(
      `the certificate of ${endpointName(settings)} is not accepted (${code}); NODE_EXTRA_CA_CERTS in host.env names a file with further authorities`
    )
  }
  if (code === "ERR_INVALID_URL" || code === "TypeError") {
    return unusable(
      `the client cannot make a request of it (${clipped(error instanceof Error ? error.message : code)})`
    )
  }
  return unavailable(
    "unreachable",
    `the store at ${endpointName(settings)} cannot be reached: ${connection[code] ?? clipped(error instanceof Error ? error.message : code)}`
  )
}
