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

/** The whole answer as it goes on the wire. `reason` is a sentence for the caller; an answer to HEAD has no body. */
export const ownAnswer = ({ status, reason, retryAfter }: Refused, toHead: boolean): Buffer => {
  const body = Buffer.from(`${reason}\n`)
  const head =
    `HTTP/1.1 ${status} ${phrases[status]}\r\n` +
    "content-type: text/plain; charset=utf-8\r\n" +
    "cache-control: no-store\r\n" +
    "connection: close\r\n" +
    (retryAfter === undefined ? "" : `retry-after: ${retryAfter}\r\n`) +
    `content-length: ${body.length}\r\n\r\n`
  return toHead ? Buffer.from(head) : Buffer.concat([Buffer.from(head), body])
}
