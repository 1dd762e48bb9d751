/** What all raw ports share. */
import type { Routes } from "../http/routes.ts"
import type { Sweep } from "../http/sweep.ts"
import type { OnDefect } from "../http/wire.ts"
import type { RawLimits, RawTimeouts } from "./limits.ts"
import type { UdpPort } from "./udp.ts"

export interface RawContext {
  readonly routes: Routes
  readonly sweep: Sweep
  readonly onDefect: OnDefect
  readonly timeouts: RawTimeouts
  /** Whatever must be closed when the proxy ends. */
  readonly open: Set<{ destroy: () => void }>
  readonly limits: RawLimits
  /** Connections that there are. */
  tcpSessions: number
  /** Sessions of UDP that there are. */
  udpSessions: number
  /** Every port that is open for UDP. */
  readonly udpPorts: Set<UdpPort>
}
