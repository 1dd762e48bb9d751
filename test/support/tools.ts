/** The host's tools, as a test wants them: counted, or replaced by others. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"

export interface Tools {
  /** The names of the tools that were run, in order. */
  readonly run: Array<string>
  readonly layer: Layer.Layer<ChildProcessSpawner.ChildProcessSpawner>
}

/** `replace` gives the command that runs instead of a tool; the tool itself where it gives none. */
export const recordedTools = (
  replace: (tool: string) => readonly [command: string, ...args: Array<string>] | undefined = () => undefined
): Tools => {
  const run: Array<string> = []
  const layer = Layer.effect(
    ChildProcessSpawner.ChildProcessSpawner,
    Effect.map(ChildProcessSpawner.ChildProcessSpawner, (real) =>
      ChildProcessSpawner.make((command) => {
        if (command._tag !== "StandardCommand") return real.spawn(command)
        run.push(command.command)
        const instead = replace(command.command)
        if (instead === undefined) return real.spawn(command)
        const [program, ...args] = instead
        return real.spawn(ChildProcess.make(program, args, command.options))
      })
    )
  ).pipe(Layer.provide(NodeServices.layer))
  return { run, layer }
}
