/** Answers of HTTP/1.1 as headers of HTTP/2. Outside Effect: this is the data path. */

/** Fields of an answer that have no place in HTTP/2, beside those that no answer is passed on with. */
const connectionFields = new Set([
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-connection",
  "upgrade"
])

const STATUS_START = "HTTP/1.1 ".length
const STATUS_END = STATUS_START + 3

/** The status of a head as the exchange gives it. */
export const statusOf = (head: string): number => Number(head.slice(STATUS_START, STATUS_END))

/** 205: has no content, whatever the app says; what it sends of it is not passed on. */
const RESET_CONTENT = 205

/** Its fields: names, in lower case, and values by turns. */
export const fieldsOf = (head: string): Array<string> => {
  const fields = fieldsIn(head, head.indexOf("\r\n") + 2)
  const length = statusOf(head) === RESET_CONTENT ? fields.indexOf("content-length") : -1
  if (length !== -1) fields.splice(length, 2)
  return fields
}

/** The fields of lines that each end in CR LF. */
export const fieldsIn = (lines: string, start = 0): Array<string> => {
  const fields: Array<string> = []
  let from = start
  while (from < lines.length) {
    const end = lines.indexOf("\r\n", from)
    const colon = lines.indexOf(":", from)
    const name = lines.slice(from, colon).toLowerCase()
    if (!connectionFields.has(name)) fields.push(name, lines.slice(colon + 1, end).trim())
    from = end + 2
  }
  return fields
}

/** Fields as an object, whose values are lists where a name comes more than once. */
export const asObject = (fields: ReadonlyArray<string>): Record<string, string | Array<string>> => {
  const object: Record<string, string | Array<string>> = Object.create(null)
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] ?? ""
    const value = fields[i + 1] ?? ""
    const before = object[name]
    object[name] = before === undefined ? value : Array.isArray(before) ? [...before, value] : [before, value]
  }
  return object
}
