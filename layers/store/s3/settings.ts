/** Which bucket an `s3://` address names, and how it is reached. */
import { type Duration, Redacted } from "effect"
import type { HostSecrets } from "../../../src/config/host-env.ts"

export interface S3Settings {
  readonly bucket: string
  /** What stands before each key: empty, or ends in a slash. */
  readonly prefix: string
  readonly region: string
  readonly accessKeyId: string
  readonly secretAccessKey: Redacted.Redacted
  readonly sessionToken: Redacted.Redacted | undefined
  /** Of a store that is not AWS's. */
  readonly endpoint: string | undefined
  /** Whether the bucket is a part of the path, and not of the host's name. */
  readonly pathStyle: boolean
  /** How long a store that is not there, or asks to be spared, is asked again. Default 30 seconds. */
  readonly patience?: Duration.Input
}

type Environment = Readonly<Record<string, string | undefined>>

/** Bucket names that are one label of a host's name: others fit no wildcard certificate, or no name at all. */
const ONE_LABEL = /^[a-z0-9](?:[a-z0-9-]{1,61}[a-z0-9])$/u

/**
 * Reads the address and AWS's standard variables: `AWS_ENDPOINT_URL_S3`, else `AWS_ENDPOINT_URL`, unless
 * `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS` is `true`; `AWS_SESSION_TOKEN`. There is no standard variable for the style of
 * addresses: the bucket goes into the path where the endpoint is overridden, and where its name is not one label of a
 * host's name.
 */
export const s3Settings = (
  url: string,
  secrets: NonNullable<HostSecrets["s3"]>,
  environment: Environment
): S3Settings => {
  const [bucket = "", ...parts] = url.slice("s3://".length).split("/")
  const prefix = parts.join("/").replace(/\/+$/u, "")
  const value = (name: string) => environment[name]?.trim() || undefined
  const endpoint =
    value("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")?.toLowerCase() === "true"
      ? undefined
      : (value("AWS_ENDPOINT_URL_S3") ?? value("AWS_ENDPOINT_URL"))
  const token = value("AWS_SESSION_TOKEN")
  return {
    bucket,
    prefix: prefix === "" ? "" : `${prefix}/`,
    region: secrets.region,
    accessKeyId: secrets.accessKeyId,
    secretAccessKey: secrets.secretAccessKey,
    sessionToken: token === undefined ? undefined : Redacted.make(token, { label: "AWS_SESSION_TOKEN" }),
    endpoint,
    pathStyle: endpoint !== undefined || !ONE_LABEL.test(bucket)
  }
}

/** Host and port that are asked, for a sentence. */
export const endpointName = ({ bucket, endpoint, pathStyle, region }: S3Settings): string => {
  if (endpoint === undefined) return `${pathStyle ? "" : `${bucket}.`}s3.${region}.amazonaws.com`
  return URL.parse(endpoint)?.host ?? "AWS_ENDPOINT_URL"
}
