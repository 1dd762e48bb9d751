/** What a test needs to be allowed to make interfaces and rules. */
import { readFileSync } from "node:fs"

const interfaces = (): ReadonlyArray<string> =>
  readFileSync("/proc/net/dev", "utf8")
    .split("\n")
    .flatMap((line) => /^\s*([^\s:]+):/u.exec(line)?.[1] ?? [])

/**
 * True in a network namespace that the tests have to themselves, as `npm test` gives them to root: it has no interface
 * beside loopback and what tests make. On the machine's own network nothing is touched.
 */
export const inOwnNamespace =
  process.getuid?.() === 0 && interfaces().every((name) => /^(?:lo|nbr\d+|test-\w+)$/u.test(name))
