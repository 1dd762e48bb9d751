/**
 * The report as JSON, made of pieces that are kept: on a host with thousands of apps, of which one has changed,
 * only that one is put into words again. Meters grow all the time: they are in no piece.
 */
import type { AppMeasurements } from "../reconcile/measurements.ts"
import type { AppStatus } from "../reconcile/status.ts"
import { appReport, type HostStatus, hostReport, metersReport } from "./build.ts"

interface Piece {
  readonly measured: Pick<AppMeasurements, "compute" | "volumes"> | undefined
  /** The app's entries of `volumes`, with commas between them. */
  readonly volumes: string
  /** Its entry of `instances`, without its meters; empty when it has none. */
  readonly instance: string
}

const same = (left: Piece["measured"], right: Piece["measured"]): boolean =>
  left?.compute === right?.compute && left?.volumes === right?.volumes

/** The entry with its meters. */
const withMeters = (instance: string, measured: AppMeasurements | undefined): string =>
  measured === undefined
    ? instance
    : `${instance.slice(0, -1)},"meters":${JSON.stringify(metersReport(measured.meters))}}`

/** Gives the report's text; remembers what it said of each state as long as that state lives. */
export const makeReportEncoder = (): ((host: HostStatus) => string) => {
  const pieces = new WeakMap<AppStatus, Piece>()

  const pieceOf = (status: AppStatus, measured: AppMeasurements | undefined, host: HostStatus): Piece => {
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
      const measured = host.measured(status.appId)
      const piece = pieceOf(status, measured, host)
      if (piece.volumes !== "") volumes.push(piece.volumes)
      if (piece.instance !== "") instances.push(withMeters(piece.instance, measured))
    }
    const head = JSON.stringify(hostReport(host))
    return `${head.slice(0, -1)},"volumes":[${volumes.join(",")}],"instances":[${instances.join(",")}]}`
  }
}
