/** The answers that the proxy gives itself: short, typed, not to be cached, and the last on their connection. */
import type { Refused } from "./admission.ts"

const phrases: Readonly<Record<number, string>> = {
  400: "Bad Request",
  404: "Not Found",
  408: "Request Timeout",
  421: "Misdirected Request",
  431: "Request Header Fields Too Large",
  501: "Not Implemented",
  502: "Bad Gateway",
  503: "Service Unavailable",
  505: "HTTP Version Not Supported"
}

/** `reason` is a sentence for the caller. */
export const ownBody = ({ reason }: Refused): Buffer => Buffer.from(`${reason}\n`)

/** What says how the body is to be read. */
export const ownFields = (
  { retryAfter }: Refused,
  body: Buffer
): ReadonlyArray<readonly [name: string, value: string]> => [
  ["date", new Date().toUTCString()],
  ["content-type", "text/plain; charset=utf-8"],
  ["cache-control", "no-store"],
  ["content-length", String(body.length)],
  ...(retryAfter === undefined ? [] : [["retry-after", String(retryAfter)] as const])
]

/** The whole answer as it goes on the wire of HTTP/1.1; one to HEAD has no body. */
export const ownAnswer = (refused: Refused, toHead: boolean): Buffer => {
  const { status } = refused
  const body = ownBody(refused)
  const fields = ownFields(refused, body).map(([name, value]) => `${name}: ${value}\r\n`)
  const head = Buffer.from(
    `HTTP/1.1 ${status} ${phrases[status]}\r\n${fields.join("")}connection: close\r\n\r\n`
  )
  return toHead ? head : Buffer.concat([head, body])
}
