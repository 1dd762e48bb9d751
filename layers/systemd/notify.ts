/** Tells systemd that the daemon serves (sd_notify(3), `Type=notify`). */
import { execFile } from "node:child_process"
import { Effect } from "effect"

/** systemd answers at once, or is not what listens there. */
const LIMIT_MS = 10_000

/**
 * Sends `READY=1` to the socket that `NOTIFY_SOCKET` names, also one of the abstract kind (`@name`); without the variable
 * nothing. Node has no datagrams on unix sockets: systemd's own `systemd-notify` sends it, which for root names its parent,
 * this daemon, as the sender, so that `NotifyAccess=main` takes it, and waits until systemd has read it. No process that the
 * daemon starts from then on is told of the socket. What goes wrong is logged, and the daemon goes on.
 */
export const notifyReady: Effect.Effect<void> = Effect.suspend(() => {
  const socket = process.env.NOTIFY_SOCKET ?? ""
  delete process.env.NOTIFY_SOCKET
  return socket === "" ? Effect.void : send(socket)
})

const send = (socket: string): Effect.Effect<void> =>
  Effect.callback<string | undefined>((resume) => {
    const child = execFile(
      "systemd-notify",
      ["--ready"],
      {
        env: { PATH: `${process.env.PATH ?? ""}:/usr/bin:/bin`, LC_ALL: "C", NOTIFY_SOCKET: socket },
        timeout: LIMIT_MS
      },
      (error, _stdout, stderr) =>
        resume(Effect.succeed(error === null ? undefined : stderr.trim() || error.message))
    )
    return Effect.sync(() => child.kill())
  }).pipe(
    Effect.flatMap((problem) =>
      problem === undefined
        ? Effect.void
        : Effect.logWarning(
            `systemd could not be told that this daemon serves, and ends it when TimeoutStartSec of its unit is over: ${problem}`
          )
    )
  )
