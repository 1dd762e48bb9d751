/** The opening of a WebSocket towards the app, which in HTTP/2 is not the caller's part (RFC 6455 section 4, RFC 8441 section 5). */
import { createHash, randomBytes } from "node:crypto"

const KEY_BYTES = 16
/** RFC 6455 section 1.3. */
const PROTOCOL_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

export const makeKey = (): string => randomBytes(KEY_BYTES).toString("base64")

/** What an app that speaks WebSocket answers to the key. */
export const acceptFor = (key: string): string =>
  createHash("sha1").update(`${key}${PROTOCOL_GUID}`).digest("base64")
