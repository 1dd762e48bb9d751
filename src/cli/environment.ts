/** The program's own variables, as they stand in the environment. */
import { ConfigProvider, Effect } from "effect"

/**
 * The text of a variable; empty when it is not set. Asked of the provider itself: a schema for a text takes longer to
 * be made than everything else that a command does before it starts.
 */
export const environmentVariable = (name: string): Effect.Effect<string> =>
  Effect.flatMap(ConfigProvider.ConfigProvider, (provider) => provider.load([name])).pipe(
    Effect.map((node) => node?.value ?? ""),
    Effect.orDie
  )
