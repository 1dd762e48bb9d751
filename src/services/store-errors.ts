/** What goes wrong with a store of objects, whoever uses it: artifacts are fetched from one, exports are stored in one. */
import { Schema } from "effect"

/** What was being done with the object, as the sentence says it. */
export const StoreOperation = Schema.Literals(["fetched", "stored"])
export type StoreOperation = typeof StoreOperation.Type

/** Of a key so many characters are shown: it may have 1024, and the reason must still be read. */
const SHOWN = 160

/** An object's key as a sentence names it, quoted. */
export const shownKey = (objectKey: string): string =>
  JSON.stringify(objectKey.length <= SHOWN ? objectKey : `${objectKey.slice(0, SHOWN)}…`)

/** The key of `config.toml` that names the store. */
export const configKey = (operation: StoreOperation): string =>
  operation === "fetched" ? "artifacts.store_url" : "exports.store_url"

/** The store, the key or the disk does not allow it. */
export class StoreUnusable extends Schema.TaggedError<StoreUnusable>()("StoreUnusable", {
  objectKey: Schema.String,
  reason: Schema.String,
  /** Absent: `fetched`. */
  operation: Schema.optionalKey(StoreOperation)
}) {
  override get message() {
    return `object ${shownKey(this.objectKey)} cannot be ${this.operation ?? "fetched"}: ${this.reason}`
  }
}

/** Why an object store refuses: until somebody changes something it will do so again. */
export const Refusal = Schema.Literals([
  "denied",
  "credentials-expired",
  "credentials-invalid",
  "clock-skewed",
  "no-such-bucket",
  "wrong-region"
])
export type Refusal = typeof Refusal.Type

interface Refused {
  readonly operation: StoreOperation
  readonly bucket: string
  readonly region: string
  readonly expectedRegion?: string
}

const refusals: Readonly<Record<Refusal, (refused: Refused) => string>> = {
  denied: ({ bucket, operation }) =>
    `the store denies access to it (403); the credentials in host.env need ${operation === "fetched" ? "s3:GetObject" : "s3:PutObject and s3:AbortMultipartUpload"} on bucket ${bucket}`,
  "credentials-expired": () =>
    "the store's credentials have expired: put new ones into host.env and restart the daemon (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)",
  "credentials-invalid": () =>
    "the store does not accept the credentials of host.env (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)",
  "clock-skewed": () =>
    "the store says that this machine's clock is wrong by many minutes: set it, and let it be kept right (NTP)",
  "no-such-bucket": ({ bucket, operation }) => `there is no bucket ${bucket} (${configKey(operation)})`,
  "wrong-region": ({ bucket, region, expectedRegion }) =>
    `bucket ${bucket} is not in region ${region}${expectedRegion === undefined ? "" : ` but in ${expectedRegion}`}: set AWS_REGION in host.env`
}

/** An object store refuses; its answer is final. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", {
  objectKey: Schema.String,
  operation: StoreOperation,
  refusal: Refusal,
  bucket: Schema.String,
  /** The region that the daemon asks in. */
  region: Schema.String,
  /** Where the store says that the bucket is, when it says so. */
  expectedRegion: Schema.optionalKey(Schema.String)
}) {
  override get message() {
    return `object ${shownKey(this.objectKey)} cannot be ${this.operation}: ${refusals[this.refusal](this)}`
  }
}

/** An object store did not do its work for so long that it was given up; later it may. */
export class StoreUnavailable extends Schema.TaggedError<StoreUnavailable>()("StoreUnavailable", {
  objectKey: Schema.String,
  operation: StoreOperation,
  /** `busy`: it asks to be spared (503, SlowDown); `failing`: an error of its own (5xx); `unreachable`: no answer, or half of one. */
  kind: Schema.Literals(["busy", "failing", "unreachable"]),
  /** Host and port that were asked. */
  endpoint: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `object ${shownKey(this.objectKey)} cannot be ${this.operation}: ${this.reason}`
  }
}

/** What any store may fail with. */
export type StoreError = StoreUnusable | StoreRefused | StoreUnavailable
