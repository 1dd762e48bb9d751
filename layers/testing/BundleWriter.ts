/** Bundles in memory: text that names the volume and its environment. */
import { Effect, Layer, Stream } from "effect"
import { type BundleError, type BundleOptions, BundleWriter } from "../../src/services/BundleWriter.ts"
import { Script } from "./Script.ts"

export interface BundleWorld {
  /** What was asked for, oldest first. */
  readonly opened: Array<BundleOptions>
  /** How many scopes of bundles are open now. */
  reading: number
  readonly leftOut: { sockets: number; fifos: number; devices: number }
  /** `open` is the call, `read` the end of the contents. The subject is the volume's id. */
  readonly script: Script<{ open: BundleError; read: BundleError }>
}

export const makeBundleWorld = (): BundleWorld => ({
  opened: [],
  reading: 0,
  leftOut: { sockets: 0, fifos: 0, devices: 0 },
  script: new Script()
})

/** The bytes of the bundle that the layer makes. */
export const memoryBundle = ({ volume, environment }: BundleOptions): string =>
  `bundle of ${volume.exportName}\n${environment ?? ""}`

export const layerBundleWriterMemory = (world: BundleWorld) =>
  Layer.succeed(BundleWriter, {
    open: (options) =>
      Effect.gen(function* () {
        const subject = options.volume.exportName
        const bytes = new TextEncoder().encode(memoryBundle(options))
        yield* Effect.acquireRelease(
          world.script.around(
            "open",
            subject,
            Effect.sync(() => {
              world.opened.push(options)
              world.reading++
            })
          ),
          () =>
            Effect.sync(() => {
              world.reading--
            })
        )
        return {
          usedBytes: bytes.length,
          contents: Stream.concat(
            Stream.make(bytes),
            Stream.fromEffectDrain(world.script.around("read", subject, Effect.void))
          ),
          leftOut: Effect.sync(() => ({ ...world.leftOut }))
        }
      })
  })
