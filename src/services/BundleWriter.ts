/** From a volume's blocks to the bundle of an export: a gzipped tar. */
import { Context, type Effect, Schema, type Scope, type Stream } from "effect"
import type { NbdExport } from "./VolumeBackend.ts"

/** There is no bundle of the volume. `message` is the sentence for the report. */
export class BundleError extends Schema.TaggedError<BundleError>()("BundleError", { reason: Schema.String }) {
  override get message() {
    return `the volume cannot be bundled: ${this.reason}`
  }
}

/** What lies on the volume and is not in its bundle, as it means nothing outside of the app that made it. */
export interface LeftOut {
  readonly sockets: number
  readonly fifos: number
  /** Devices that are no whiteouts. */
  readonly devices: number
}

export interface Bundle {
  /** What the volume's filesystem holds, compressed by nothing: the bundle has hardly more. */
  readonly usedBytes: number
  /** To be read once. */
  readonly contents: Stream.Stream<Uint8Array, BundleError>
  /** Known once the contents are read to their end; before, whoever asks waits. */
  readonly leftOut: Effect.Effect<LeftOut>
}

export interface BundleOptions {
  /** The volume at rest: nobody writes to it meanwhile. */
  readonly volume: NbdExport
  /** The text of `.env`; without it the bundle has none. Secret. */
  readonly environment: string | undefined
  /** The time of `.env`: ms since 1970. */
  readonly at: number
}

export class BundleWriter extends Context.Service<
  BundleWriter,
  {
    /**
     * Begins to read what the app has written to its volume. Names, modes, owners, times, links, holes and extended
     * attributes are kept; where the app has deleted or replaced what a layer holds, the bundle has overlayfs's marks.
     * A filesystem that is damaged, or made to hurt, is an error. Ends with the scope.
     */
    readonly open: (options: BundleOptions) => Effect.Effect<Bundle, BundleError, Scope.Scope>
  }
>()("nibrunner/services/BundleWriter") {}
