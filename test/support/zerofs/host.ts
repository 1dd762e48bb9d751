/** Volumes on a ZeroFS of the test's own. */
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { layerZerofsVolumes } from "../../../layers/volume/zerofs/layer.ts"
import { openExport } from "../../../layers/volume/zerofs/nbd.ts"
import type { VolumeId } from "../../../src/document/schema.ts"
import { GuestImage } from "../../../src/services/GuestImage.ts"
import { temporaryDirectory } from "../temporary.ts"
import { compiledRelay, testZerofs } from "./fixture.ts"

/** Where ext4 has the filesystem's UUID. */
const UUID_AT = 1024 + 0x68

const superblock = (socketPath: string, exportName: string) =>
  openExport(socketPath, exportName).pipe(
    Effect.flatMap((volume) => Effect.map(volume.read(0, 4096), (bytes) => ({ bytes, size: volume.size }))),
    Effect.scoped,
    Effect.orDie
  )

/** ZeroFS is not started yet. */
export const zerofsHost = Effect.gen(function* () {
  const zerofs = yield* testZerofs
  const nbdRelay = yield* compiledRelay
  const directory = yield* temporaryDirectory
  const runtimeDir = path.join(directory, "run")
  const image = {
    version: "",
    kernel: "",
    initramfs: "",
    base: "",
    tscProbe: "",
    jail: "",
    nbdRelay,
    volumeBundle: ""
  }
  const options = { zerofs: zerofs.section, stateDir: path.join(directory, "state"), runtimeDir }
  const layer = layerZerofsVolumes(options).pipe(
    Layer.provide(Layer.succeed(GuestImage, image)),
    Layer.provide(NodeServices.layer)
  )
  const uuidAt = (socketPath: string, exportName: string) =>
    Effect.map(superblock(socketPath, exportName), ({ bytes }) =>
      bytes.toString("hex", UUID_AT, UUID_AT + 16)
    )
  const socketPath = zerofs.section.nbd_socket_path
  return {
    zerofs,
    layer,
    runtimeDir,
    uuidAt,
    uuid: (volumeId: VolumeId) => uuidAt(socketPath, volumeId),
    size: (volumeId: VolumeId) => Effect.map(superblock(socketPath, volumeId), ({ size }) => size)
  }
})
