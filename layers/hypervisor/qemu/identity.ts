/** The ids that this host's VMMs run as, from `/etc/subuid`. */
import { readFileSync } from "node:fs"
import { Effect } from "effect"
import { type IdRange, readIdRange } from "../../../src/hypervisor/identity.ts"
import { HypervisorError } from "../../../src/services/Hypervisor.ts"

const SUBUID = "/etc/subuid"

const failed = (reason: string) =>
  new HypervisorError({ operation: "tell which users its VMMs run as", reason })

/** The range for VMMs: that of `/etc/subuid` where it names one, else the default. Fails when the file names one that cannot be used. */
export const idRange: Effect.Effect<IdRange, HypervisorError> = Effect.try({
  try: () => readFileSync(SUBUID, "utf8"),
  catch: (error) => error as NodeJS.ErrnoException
}).pipe(
  Effect.catchIf(
    (error) => error.code === "ENOENT",
    () => Effect.succeed("")
  ),
  Effect.mapError((error) => failed(`${SUBUID} cannot be read: ${error.message}`)),
  Effect.flatMap((text) => {
    const range = readIdRange(text)
    return typeof range === "string" ? Effect.fail(failed(`${SUBUID}: ${range}`)) : Effect.succeed(range)
  })
)
