/** What `bin/` gives to the commands: the ways to the host, each loaded when a command takes it. */
import type { Effect, Layer } from "effect"
import type { HostSecrets } from "../config/host-env.ts"
import type { HostConfig } from "../config/schema.ts"
import type { HostCommander } from "../services/HostControl.ts"
import type { HostView } from "../services/HostView.ts"
import type { Installer } from "../services/Installer.ts"
import type { LogReader } from "../services/LogReader.ts"

/** Runs the host until it is interrupted. */
export type RunHost<E, R> = (config: HostConfig, secrets: HostSecrets) => Effect.Effect<void, E, R>

/** Looks at the host. */
export type OpenView<E, R> = (config: HostConfig) => Layer.Layer<HostView, E, R>

/** Asks the daemon. */
export type OpenCommander<E, R> = (config: HostConfig) => Layer.Layer<HostCommander, E, R>

/** Reads the logs of its apps. */
export type OpenLogs<E, R> = (config: HostConfig) => Layer.Layer<LogReader, E, R>

/** Lays the host out, and has it started. */
export type OpenInstaller<E, R> = () => Layer.Layer<Installer, E, R>
