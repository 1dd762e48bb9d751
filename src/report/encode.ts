/**
 * The report as JSON, made of pieces that are kept: on a host with thousands of apps, of which one has changed,
 * only that one is put into words again.
 */
import type { AppMeasurements } from "../reconcile/measurements.ts"
import type { AppStatus } from "../reconcile/status.ts"
import { appReport, type HostStatus, hostReport } from "./build.ts"

interface Piece {
  readonly measured: Pick<AppMeasurements, "compute" | "meters" | "volumes"> | undefined
  /** The app's entries of `volumes` and `instances`, with commas between them. */
  readonly volumes: string
  readonly instance: string
}

const same = (left: Piece["measured"], right: Piece["measured"]): boolean =>
  left?.compute === right?.compute && left?.meters === right?.meters && left?.volumes === right?.volumes

/** Gives the report's text; remembers what it said of each state as long as that state lives. */
export const makeReportEncoder = (): ((host: HostStatus) => string) => {
  const pieces = new WeakMap<AppStatus, Piece>()

  const pieceOf = (status: AppStatus, host: HostStatus): Piece => {
    const measured = host.measured(status.appId)
    const kept = pieces.get(status)
    if (kept !== undefined && same(kept.measured, measured)) return kept
    const report = appReport(status, measured, host.storagePrefix)
    const piece: Piece = {
      measured,
      volumes: report.volumes.map((volume) => JSON.stringify(volume)).join(","),
      instance: report.instance === undefined ? "" : JSON.stringify(report.instance)
    }
    pieces.set(status, piece)
    return piece
  }

  return (host) => {
    const volumes: Array<string> = []
    const instances: Array<string> = []
    for (const status of host.apps.values()) {
      const piece = pieceOf(status, host)
      if (piece.volumes !== "") volumes.push(piece.volumes)
      if (piece.instance !== "") instances.push(piece.instance)
    }
    const head = JSON.stringify(hostReport(host))
    return `${head.slice(0, -1)},"volumes":[${volumes.join(",")}],"instances":[${instances.join(",")}]}`
  }
}
