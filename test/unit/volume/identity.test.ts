import { execFileSync } from "node:child_process"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerLocalFileVolumes } from "../../../layers/volume/local-file.ts"
import { VolumeId } from "../../../src/document/schema.ts"
import { VolumeBackend } from "../../../src/services/VolumeBackend.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { recordedTools } from "../../support/tools.ts"

const uuidOf = (file: string): string | undefined =>
  /^Filesystem UUID: +(\S+)$/mu.exec(
    execFileSync("dumpe2fs", ["-h", file], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
      env: { PATH: `${process.env.PATH}:/usr/sbin:/sbin`, LC_ALL: "C" }
    })
  )?.[1]

describe("the filesystem of a volume", () => {
  it.live("has a UUID that no other has, and keeps it however often the volume is asked for", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const layer = layerLocalFileVolumes({ stateDir }).pipe(Layer.provide(recordedTools().layer))
      const provision = (name: string) =>
        VolumeBackend.use((volumes) =>
          volumes.provision({ volumeId: VolumeId.make(name), sizeBytes: 64 * 2 ** 20 })
        ).pipe(Effect.provide(layer))
      const uuid = (name: string) => uuidOf(path.join(stateDir, "volumes", `${name}.img`))
      yield* provision("vol-1")
      yield* provision("vol-2")
      const [first, second] = [uuid("vol-1"), uuid("vol-2")]
      assert.isDefined(first)
      assert.notStrictEqual(first, second)
      yield* provision("vol-1")
      assert.strictEqual(uuid("vol-1"), first)
    })
  )
})
