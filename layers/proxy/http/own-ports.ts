/** The apps' own ports on 127.0.0.1. */
import type { Server } from "node:net"
import { Effect } from "effect"
import type { AppId } from "../../../src/document/schema.ts"
import type { RefusedPorts } from "../refused-ports.ts"
import type { App } from "./app.ts"
import { close, listen } from "./listen.ts"

const LOOPBACK = "127.0.0.1"
/** Among the ports of an app that may be refused. */
const OWN = "own"

interface OwnPort {
  readonly app: App
  readonly port: number
  /** Absent while the port cannot be bound. */
  server: Server | undefined
}

/** Not safe for concurrent use: the layer lets one call in at a time. */
export class OwnPorts {
  readonly #ports = new Map<AppId, OwnPort>()
  readonly #open: (app: App) => Server
  readonly #onError: (error: Error) => void
  readonly #refused: RefusedPorts

  constructor(open: (app: App) => Server, onError: (error: Error) => void, refused: RefusedPorts) {
    this.#open = open
    this.#onError = onError
    this.#refused = refused
  }

  /** Makes `port` the app's own, or none when undefined. A port that cannot be bound is said in the log and kept for `retry`. */
  set(app: App, port: number | undefined): Effect.Effect<void> {
    return Effect.suspend(() => {
      const present = this.#ports.get(app.appId)
      if (present?.app === app && present.port === port) return Effect.void
      const wanted = port === undefined ? undefined : { app, port, server: undefined }
      return this.remove(app.appId).pipe(
        Effect.andThen(Effect.suspend(() => (wanted === undefined ? Effect.void : this.#add(wanted)))),
        Effect.uninterruptible
      )
    })
  }

  /** Closes the app's own port, if it has one. */
  remove(appId: AppId): Effect.Effect<void> {
    return Effect.suspend(() => {
      const server = this.#ports.get(appId)?.server
      this.#ports.delete(appId)
      this.#refused.forget(appId, OWN)
      return server === undefined ? Effect.void : close(server)
    })
  }

  /** Tries the ports again that could not be bound. */
  readonly retry: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach(
      [...this.#ports.values()].filter((own) => own.server === undefined),
      (own) =>
        this.#bind(own).pipe(
          Effect.andThen(Effect.logInfo(`port ${own.port} of app ${own.app.appId} is open now`)),
          Effect.ignore
        ),
      { discard: true }
    )
  )

  readonly closeAll: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach([...this.#ports.keys()], (appId) => this.remove(appId), { discard: true })
  )

  #add(own: OwnPort): Effect.Effect<void> {
    this.#ports.set(own.app.appId, own)
    return this.#bind(own).pipe(
      Effect.catch((reason) =>
        Effect.logWarning(
          `app ${own.app.appId} cannot be reached on its own port, only by its hostnames: ${reason}; it is tried again every few seconds`
        )
      )
    )
  }

  #bind(own: OwnPort): Effect.Effect<void, string> {
    return Effect.suspend(() => {
      const server = this.#open(own.app)
      const listening = listen(server, LOOPBACK, own.port, this.#onError)
      return this.#refused.seen(own.app.appId, OWN, "its own port cannot be reached", listening).pipe(
        Effect.andThen(
          Effect.sync(() => {
            own.server = server
          })
        )
      )
    })
  }
}
