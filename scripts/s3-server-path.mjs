// @ts-check
/** Which S3 server the tests and benches run against, and where it lies. */
import { join } from "node:path"
import { fileURLToPath } from "node:url"

export const tools = join(fileURLToPath(new URL("..", import.meta.url)), ".nibrunner/tools")

export const VERSION = "v1.8.0"

export const s3Server = join(tools, `versitygw-${VERSION}`)
