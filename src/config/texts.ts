/** The texts of `config.toml` that have a form of their own. Each check gives the reason for a refusal, or nothing. */
import { Result } from "effect"

export const utf8Length = (text: string): number => new TextEncoder().encode(text).length

/** `s3://bucket`, `s3://bucket/prefix` or an absolute path. */
export const STORE_URL = /^(?:s3:\/\/[A-Za-z0-9._-]+(?:\/[^\x00-\x1f]*)?|\/[^\x00-\x1f]*)$/u

/** Names the scheme at most: what follows it may hold a password. */
export const storeUrlProblem = (url: string): string | undefined => {
  if (STORE_URL.test(url)) return undefined
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//u.exec(url)?.[1]
  if (scheme === undefined) return "must be s3://bucket, s3://bucket/prefix or an absolute path"
  if (scheme !== "s3")
    return `has the scheme ${scheme.slice(0, 20)}://, but only s3:// and absolute paths are known`
  return "must name a bucket of letters, digits, '.', '_' and '-' after s3://; credentials belong in host.env"
}

export const STORAGE_PREFIX = /^(?!\.\.?(?:\/|$))[^/]+(?:\/(?!\.\.?(?:\/|$))[^/]+)*$/u
const MAX_PREFIX_BYTES = 512

export const prefixProblem = (prefix: string): string | undefined => {
  const bytes = utf8Length(prefix)
  if (bytes === 0 || bytes > MAX_PREFIX_BYTES)
    return `has ${bytes} bytes, but must have 1 to ${MAX_PREFIX_BYTES}`
  if (prefix.startsWith("/") || prefix.endsWith("/")) return "must neither start nor end with '/'"
  const parts = prefix.split("/")
  if (parts.includes("")) return "has an empty part between two '/'"
  return parts.some((part) => part === "." || part === "..")
    ? "must not have '.' or '..' as a part"
    : undefined
}

/** Whether the name is one of the IANA time zone database. */
export const isTimeZone = (name: string): boolean =>
  // To ask takes long, and most ask for this one.
  name === "UTC" ||
  // An offset such as +01:00 would be taken too, but is no name.
  (/^[A-Za-z]/u.test(name) &&
    Result.isSuccess(Result.try(() => new Intl.DateTimeFormat("en", { timeZone: name }))))
