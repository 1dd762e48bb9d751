/** A guest image that is only named: for hypervisors that boot nothing. */
import { Layer } from "effect"
import { GuestImage } from "../../src/services/GuestImage.ts"

/** Paths at which nothing need be. */
export const layerGuestImage = (version = "test-image"): Layer.Layer<GuestImage> =>
  Layer.succeed(GuestImage, {
    version,
    kernel: "/image/vmlinux",
    initramfs: "/image/initramfs",
    base: "/image/base.squashfs",
    tscProbe: "/image/tsc-khz",
    jail: "/image/jail",
    nbdRelay: "/image/nbd-relay",
    volumeBundle: "/image/volume-bundle"
  })
