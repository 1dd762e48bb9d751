/** Asks the daemon of this host by its private socket. */
import { request } from "node:http"
import { Effect, Layer } from "effect"
import { CommandFailed, HostCommander } from "../../src/services/HostControl.ts"
import { controlSocket } from "./socket.ts"

/** What the daemon may take to do what it is asked. */
const ANSWER_MS = 120_000

const explain = (path: string, error: NodeJS.ErrnoException): string => {
  switch (error.code) {
    case "ENOENT":
    case "ECONNREFUSED":
      return `no daemon of this host runs (${path})`
    case "EACCES":
      return `${path} may be opened by the daemon's user alone, or by root`
    default:
      return `the daemon cannot be asked by ${path}: ${error.message}`
  }
}

export const layerControlClient = ({ runtimeDir }: { readonly runtimeDir: string }) =>
  Layer.succeed(HostCommander, {
    sleep: (appId) =>
      Effect.callback<void, CommandFailed>((resume) => {
        const socketPath = controlSocket(runtimeDir)
        const failed = (reason: string) => resume(Effect.fail(new CommandFailed({ reason })))
        const path = `/apps/${encodeURIComponent(appId)}/sleep`
        const asked = request({ socketPath, method: "POST", path, timeout: ANSWER_MS }, (response) => {
          let text = ""
          response.setEncoding("utf8")
          response.on("data", (piece: string) => {
            text += piece
          })
          response.on("end", () =>
            response.statusCode === 204
              ? resume(Effect.void)
              : failed(text.length > 0 ? text : `the daemon answered ${response.statusCode}`)
          )
        })
        asked.on("timeout", () => asked.destroy(new Error(`no answer in ${ANSWER_MS / 1000} s`)))
        asked.on("error", (error) => failed(explain(socketPath, error)))
        asked.end()
        return Effect.sync(() => asked.destroy())
      })
  })
