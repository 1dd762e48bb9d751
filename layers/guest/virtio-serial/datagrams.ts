/** UDP to a guest and back, over whichever connection there is. Outside Effect: this is a data path. */
import { Effect, Latch } from "effect"
import type { AppId } from "../../../src/document/schema.ts"
import type { DatagramPath } from "../../../src/services/Proxy.ts"
import { DATAGRAMS_SINCE } from "../../../src/wire/records.ts"
import type { Channel } from "./channel.ts"

/** What a connection does with what the guest says of datagrams. */
export interface Replies {
  readonly deliver: (flow: number, bytes: Uint8Array) => Effect.Effect<void>
  /** So many more found no room in the guest. */
  readonly dropped: (datagrams: number) => void
}

export interface Datagrams extends Replies {
  readonly path: DatagramPath
  /** Tells the log of what found no room, for as long as it runs. */
  readonly complain: Effect.Effect<never>
}

/** How long losses are counted before the log is told of them, and how long it is told of no more. */
const COMPLAINT_MS = { after: 1_000, every: 60_000 }
const LAST_FLOW = 0xffffffff

interface Flow {
  readonly onReply: (bytes: Uint8Array) => void
  /** The connection on which the guest has heard of it. */
  knownOn: Channel | undefined
}

/** `channel`: the connection of the moment. */
export const makeDatagrams = (appId: AppId, channel: () => Channel | undefined): Datagrams => {
  const flows = new Map<number, Flow>()
  let lastFlow = 0
  let lost = 0
  const losing = Latch.makeUnsafe(false)

  const lose = (datagrams: number) => {
    lost += datagrams
    losing.openUnsafe()
  }

  const nextFlow = () => {
    do lastFlow = lastFlow === LAST_FLOW ? 1 : lastFlow + 1
    while (flows.has(lastFlow))
    return lastFlow
  }

  const path: DatagramPath = {
    open: (guestPort, onReply) => {
      const flow = nextFlow()
      const state: Flow = { onReply, knownOn: undefined }
      flows.set(flow, state)
      return {
        send: (bytes) => {
          const now = channel()
          if (!flows.has(flow) || now === undefined) return
          const sent =
            now.version >= DATAGRAMS_SINCE &&
            now.sendLossy({ kind: "datagram", flow, port: guestPort, bytes })
          if (sent) state.knownOn = now
          else lose(1)
        },
        close: () => {
          if (!flows.delete(flow)) return
          const now = channel()
          // what is not told is noticed by the guest after a minute of silence
          if (now !== undefined && state.knownOn === now) now.sendLossy({ kind: "close-flow", flow })
        }
      }
    }
  }

  return {
    path,
    deliver: (flow, bytes) =>
      Effect.sync(() => flows.get(flow)?.onReply(bytes)).pipe(
        Effect.catchDefect((defect) => Effect.logError("a reply over UDP could not be passed on", defect))
      ),
    dropped: lose,
    complain: Effect.gen(function* () {
      yield* losing.await
      yield* Effect.sleep(COMPLAINT_MS.after)
      losing.closeUnsafe()
      const datagrams = lost
      lost = 0
      const image = (channel()?.version ?? DATAGRAMS_SINCE) < DATAGRAMS_SINCE
      yield* Effect.logWarning(
        image
          ? `the guest of ${appId} is of an image that carries no UDP: it does after the app's next boot`
          : `${datagrams} UDP datagrams found no room on their way to the guest of ${appId} or back`
      )
      yield* Effect.sleep(COMPLAINT_MS.every)
    }).pipe(Effect.forever)
  }
}
