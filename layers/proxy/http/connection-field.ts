/** What the Connection fields of a message say (RFC 9110 section 7.6.1). Outside Effect: this is the data path. */
import { CONNECTION, CONTENT_LENGTH, HOST_FIELD, NOMINATED, TRANSFER_ENCODING, UPGRADE } from "./fields.ts"
import { ascii, spells } from "./grammar.ts"
import type { HeadReader } from "./head.ts"

/** Set by `readConnection`: bits. */
export const SAYS_CLOSE = 1
export const SAYS_KEEP_ALIVE = 2
export const SAYS_UPGRADE = 4

const close = ascii("close")
const keepAlive = ascii("keep-alive")

/** Fields that a Connection field cannot take away: they say whom a message is for and where it ends. */
const isProtected = (id: number) =>
  id === HOST_FIELD ||
  id === CONTENT_LENGTH ||
  id === TRANSFER_ENCODING ||
  id === CONNECTION ||
  id === UPGRADE

/**
 * Gives the bits of all Connection fields together, and marks the fields that they name as `NOMINATED`.
 */
export const readConnection = (head: HeadReader, bytes: Buffer, base: number): number => {
  let says = 0
  for (let field = 0; field < head.fieldCount; field++) {
    if (head.id(field) === CONNECTION) says |= readOne(head, bytes, base, field)
  }
  return says
}

const readOne = (head: HeadReader, bytes: Buffer, base: number, field: number): number => {
  const start = base + head.valueStart(field)
  const end = base + head.valueEnd(field)
  if (end - start === close.length && spells(bytes, start, close)) return SAYS_CLOSE
  if (end - start === keepAlive.length && spells(bytes, start, keepAlive)) return SAYS_KEEP_ALIVE
  let says = 0
  for (const element of bytes.toString("latin1", start, end).split(",")) {
    const option = element.trim().toLowerCase()
    if (option === "close") says |= SAYS_CLOSE
    else if (option === "keep-alive") says |= SAYS_KEEP_ALIVE
    else if (option === "upgrade") says |= SAYS_UPGRADE
    else if (option !== "") nominate(head, bytes, base, option)
  }
  return says
}

const nominate = (head: HeadReader, bytes: Buffer, base: number, option: string): void => {
  for (let field = 0; field < head.fieldCount; field++) {
    const id = head.id(field)
    const start = head.nameStart(field)
    const end = head.nameEnd(field)
    if (end - start !== option.length || isProtected(id)) continue
    if (bytes.toString("latin1", base + start, base + end).toLowerCase() === option)
      head.setId(field, NOMINATED)
  }
}
