/** The host's services for a configuration: which implementation each section of it names. */
import { Effect, Layer, Schema } from "effect"
import type { HostSecrets } from "../src/config/host-env.ts"
import { DEFAULT_KEEP_MIB_PER_APP, type HostConfig } from "../src/config/schema.ts"
import { unsupportedIn } from "../src/config/unsupported.ts"
import { layerControlSocket } from "./control/socket.ts"
import { layerWatchedDocument } from "./document/watch.ts"
import { layerBundleProgram } from "./export/program.ts"
import { layerVirtioSerialGuest } from "./guest/virtio-serial/layer.ts"
import { layerVerifiedGuestImage } from "./guest-image/verified.ts"
import { layerHttpProber } from "./health/http.ts"
import { layerLinuxHostInfo } from "./host-info/linux.ts"
import { layerQemu } from "./hypervisor/qemu/layer.ts"
import { layerSquashfsImages } from "./images/squashfs.ts"
import { layerFileLogs } from "./logs/file.ts"
import { layerNetwork } from "./network/choose.ts"
import { layerProxy, type ProxyOptions } from "./proxy/layer.ts"
import { layerFileReporter } from "./reporter/file.ts"
import { layerMetricsPage } from "./reporter/metrics.ts"
import { layerSettings } from "./settings.ts"
import { layerHostDirectories, ownDirectories } from "./state/directories.ts"
import { layerSqliteNotes } from "./state/sqlite.ts"
import { layerArtifacts, layerExports } from "./store/configured.ts"
import { layerLocalFileVolumes } from "./volume/local-file.ts"
import { layerZerofsVolumes } from "./volume/zerofs/layer.ts"

/** The configuration is right, but asks for something that this version does not have. */
export class NotSupported extends Schema.TaggedError<NotSupported>()("NotSupported", {
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

const QEMU = "qemu-system-x86_64"

/** Says so when the configuration asks for what is not there yet, before anything is touched. */
const supported = (config: HostConfig) => {
  const unsupported = unsupportedIn(config)
  const refused = unsupported.find((each) => each.refused)
  return refused === undefined
    ? Effect.forEach(unsupported, ({ message }) => Effect.logWarning(message), { discard: true })
    : Effect.fail(new NotSupported({ reason: refused.message }))
}

const proxyOptions = ({ proxy }: HostConfig): ProxyOptions => {
  const http = proxy?.http
  const raw = proxy?.raw && { address: proxy.raw.listen_address }
  if (http === undefined) return { raw, awaitRoutes: true }
  const { concurrency, tls } = http
  return {
    raw,
    awaitRoutes: true,
    listen: { address: http.listen_address, port: http.port },
    tls: tls && { certificate: tls.certificate, key: tls.key, clientCa: tls.client_ca?.certificate },
    concurrency: concurrency && { host: concurrency.host_concurrent, app: concurrency.app_concurrent }
  }
}

const layerVolumes = ({ paths, volumes: { zerofs } }: HostConfig) =>
  zerofs === undefined
    ? layerLocalFileVolumes({ stateDir: paths.state_dir })
    : layerZerofsVolumes({ zerofs, stateDir: paths.state_dir, runtimeDir: paths.runtime_dir })

/** Every service of a host. The guest image is verified and the host's directories are held before anything else happens. */
export const layerLive = (config: HostConfig, secrets: HostSecrets) => {
  const { metrics, paths } = config
  const stateDir = paths.state_dir
  const image = layerVerifiedGuestImage(paths.guest_image_dir)
  const store = layerArtifacts(config, secrets, process.env)
  const keepMib = config.logs?.keep_mib_per_app ?? DEFAULT_KEEP_MIB_PER_APP
  const services = Layer.mergeAll(
    layerQemu({ binary: config.hypervisor?.binary ?? QEMU, runtimeDir: paths.runtime_dir }),
    layerVirtioSerialGuest,
    layerNetwork(config),
    layerHttpProber,
    layerVolumes(config),
    layerSquashfsImages({ stateDir }).pipe(Layer.provideMerge(store)),
    layerExports(config, secrets, process.env),
    layerBundleProgram,
    layerFileLogs({ stateDir, keepBytes: keepMib * 2 ** 20 }),
    layerFileReporter({ stateDir }),
    metrics === undefined
      ? Layer.empty
      : layerMetricsPage({ address: metrics.listen_address, port: metrics.port }),
    layerControlSocket({ runtimeDir: paths.runtime_dir }),
    layerWatchedDocument({ path: paths.desired_state_file }),
    layerLinuxHostInfo({ stateDir }),
    layerProxy(proxyOptions(config)),
    layerSettings(config)
  )
  // The order is a promise: who does not hold the host's directories has touched nothing.
  return Layer.unwrap(Effect.as(supported(config), services)).pipe(
    Layer.provideMerge(layerSqliteNotes({ stateDir })),
    Layer.provideMerge(layerHostDirectories(ownDirectories(config))),
    Layer.provideMerge(image)
  )
}
