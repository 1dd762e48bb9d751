/** The kernel, initramfs and base that every microVM boots from, as their manifest vouches for them. */
import { Context, Schema } from "effect"

export const GuestImageFile = Schema.Struct({ name: Schema.String, sha256: Schema.String, bytes: Schema.Int })

/** `manifest.json` in the guest image's directory. */
export const GuestImageManifest = Schema.Struct({
  /** Names the whole image: the sha-256 of its inputs, shortened to 16 hex digits. */
  version: Schema.String,
  kernelVersion: Schema.String,
  debianVersion: Schema.String,
  kernel: GuestImageFile,
  initramfs: GuestImageFile,
  base: GuestImageFile,
  /** A static program for the host that prints the frequency of its TSC in kHz (a TCG guest is told it). */
  tscProbe: GuestImageFile,
  /** A static program for the host that starts a VMM with nothing but what is its own (`guest/image/jail.c`). */
  jail: GuestImageFile,
  /** A static program for the host that gives a VMM one export of an NBD server and no other (`guest/image/nbd-relay.c`). */
  nbdRelay: GuestImageFile,
  /** A static program for the host that writes a volume as a bundle (`guest/bundle`). */
  volumeBundle: GuestImageFile
})
export interface GuestImageManifest extends Schema.Schema.Type<typeof GuestImageManifest> {}

/** The guest image is absent, or is not what its manifest says. */
export class GuestImageUnusable extends Schema.TaggedError<GuestImageUnusable>()("GuestImageUnusable", {
  path: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the guest image is not usable: ${this.path} ${this.reason}`
  }
}

/** Paths are absolute. Building the layer verifies every file against the manifest, so a daemon with a wrong image does not start. */
export class GuestImage extends Context.Service<
  GuestImage,
  {
    readonly version: string
    readonly kernel: string
    readonly initramfs: string
    readonly base: string
    readonly tscProbe: string
    readonly jail: string
    readonly nbdRelay: string
    readonly volumeBundle: string
  }
>()("nibrunner/services/GuestImage") {}
