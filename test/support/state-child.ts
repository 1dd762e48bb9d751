/**
 * Uses a state directory in a process of its own: `<stateDir>` holds it until it is killed; `write` also claims
 * slot after slot for `app-<n>` and writes each name once it is confirmed; `ten` does so ten times and ends. `look`
 * holds nothing, and looks all the time whether somebody does.
 */
import { writeSync } from "node:fs"
import { Effect } from "effect"
import { isHeld } from "../../layers/state/lock.ts"
import { layerSqliteState } from "../../layers/state/sqlite.ts"
import { AppId } from "../../src/document/schema.ts"
import { HostState } from "../../src/services/HostState.ts"

const [stateDir = "", mode = "hold"] = process.argv.slice(2)
const say = (line: string) => writeSync(1, `${line}\n`)

const claims = (count: number) =>
  HostState.use((state) =>
    Effect.gen(function* () {
      for (let slot = 0; slot < count; slot += 1) {
        const appId = AppId.make(`app-${slot}`)
        yield* state.claimSlot({ appId, slot, attempts: 0, restartCount: 0 })
        say(appId)
      }
    })
  )

const life = mode === "ten" ? claims(10) : mode === "write" ? claims(1_000_000) : Effect.sleep("1 hour")

const open = Effect.sync(() => say("open"))
await Effect.runPromise(
  mode === "look"
    ? Effect.andThen(open, Effect.forever(isHeld({ key: "paths.state_dir", path: stateDir })))
    : open.pipe(Effect.andThen(life), Effect.provide(layerSqliteState({ stateDir })))
)
