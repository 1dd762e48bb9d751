/**
 * `<runtime_dir>/control.sock`: HTTP on a unix socket that the daemon's user alone may open.
 * `POST /apps/APP/sleep` answers 204 when the app sleeps, 409 with the reason when it does not.
 */
import * as fs from "node:fs"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { Effect, FiberSet, Layer } from "effect"
import { ControlError, type HostCommands, HostControl } from "../../src/services/HostControl.ts"
import { closeAtOnce } from "../proxy/http/listen.ts"

export const controlSocket = (runtimeDir: string): string => `${runtimeDir}/control.sock`

/** Group 1 is the app's id as its caller writes it, encoded for a URL. */
const SLEEP = /^\/apps\/([^/]+)\/sleep$/u

const decoded = (segment: string | undefined): string | undefined => {
  try {
    return segment === undefined ? undefined : decodeURIComponent(segment)
  } catch {
    return undefined
  }
}

const say = (response: ServerResponse, status: number, sentence?: string) => {
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8", connection: "close" })
  response.end(sentence)
}

const listen = (path: string, handle: (request: IncomingMessage, response: ServerResponse) => void) =>
  Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>, ControlError>((resume) => {
      const failed = (error: Error) => resume(Effect.fail(new ControlError({ path, reason: error.message })))
      const server = createServer({ requestTimeout: 5_000, headersTimeout: 5_000 }, handle)
      server.maxConnections = 128
      server.once("error", failed)
      try {
        fs.rmSync(path, { force: true })
      } catch (error) {
        return failed(error as Error)
      }
      // Nobody else may open it, from its first moment on.
      const before = process.umask(0o177)
      server.listen(path, () => resume(Effect.succeed(server)))
      process.umask(before)
    }),
    closeAtOnce
  )

/** Listens when the host offers its commands; a host that cannot says so in the log and goes on. */
export const layerControlSocket = ({ runtimeDir }: { readonly runtimeDir: string }) =>
  Layer.effect(
    HostControl,
    Effect.succeed({
      offer: Effect.fnUntraced(function* (commands: HostCommands) {
        const fork = yield* FiberSet.makeRuntime<never>()
        yield* listen(controlSocket(runtimeDir), ({ method, url }, response) => {
          const app = decoded(SLEEP.exec(url ?? "")?.[1])
          if (app === undefined) return say(response, 404, "there is no such command")
          if (method !== "POST") return say(response, 405, "a command is asked with POST")
          fork(
            Effect.map(commands.sleep(app), (reason) =>
              reason === undefined ? say(response, 204) : say(response, 409, reason)
            )
          )
        }).pipe(Effect.catch((error) => Effect.logError(error.message)))
      })
    })
  )
