/** A daemon that serves at once: tells systemd, and says on stdout whether its children would be told of the socket. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { notifyReady } from "../../layers/systemd/notify.ts"

notifyReady.pipe(
  Effect.andThen(Effect.suspend(() => Console.log(process.env.NOTIFY_SOCKET ?? "none"))),
  NodeRuntime.runMain
)
