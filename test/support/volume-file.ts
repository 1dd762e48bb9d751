/** The file of a volume that is a file of this disk. */
import type { VolumeAttachment } from "../../src/services/VolumeBackend.ts"

/** Its path. A volume on a server is a mistake of the test. */
export const volumeFile = (volume: VolumeAttachment): string => {
  if (volume.kind !== "file")
    throw new Error(`export ${volume.exportName} of ${volume.socketPath} is no file`)
  return volume.path
}
