/** What an operator may ask a running daemon to do, by its private socket. */
import { Context, Effect, Schema, type Scope } from "effect"

/** The daemon's side. */
export interface HostCommands {
  /** Puts an app to sleep now, whatever its policy; undefined when it sleeps, else the reason why it does not. */
  readonly sleep: (app: string) => Effect.Effect<string | undefined>
}

/** Takes commands from outside; by default from nobody. */
export const HostControl = Context.Reference<{
  /** Serves commands until the scope closes. */
  readonly offer: (commands: HostCommands) => Effect.Effect<void, never, Scope.Scope>
}>("nibrunner/services/HostControl", { defaultValue: () => ({ offer: () => Effect.void }) })

/** The daemon's socket cannot be served. */
export class ControlError extends Schema.TaggedError<ControlError>()("ControlError", {
  path: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the daemon cannot take commands on ${this.path} (paths.runtime_dir): ${this.reason}`
  }
}

/** The daemon did not do what it was asked. */
export class CommandFailed extends Schema.TaggedError<CommandFailed>()("CommandFailed", {
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

/** The other side: asks the daemon of this host. */
export class HostCommander extends Context.Service<
  HostCommander,
  { readonly sleep: (appId: string) => Effect.Effect<void, CommandFailed> }
>()("nibrunner/services/HostCommander") {}
