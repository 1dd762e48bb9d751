/** What comes for the apps on their raw ports, as far as it passes through the proxy. */
import type { RawTraffic } from "../../services/Proxy.ts"
import { counter, type Family, gauge, type Put } from "../exposition.ts"
import type { LabelText } from "../instruments.ts"
import type { MetricsView } from "../view.ts"
import { appLabel, perApp } from "./samples.ts"

const outcomeLabels = {
  relayed: "served",
  down: "down",
  wakeRefused: "refused",
  notTaken: "unreachable"
} as const
const outcomes = Object.entries(outcomeLabels) as ReadonlyArray<
  [keyof typeof outcomeLabels, (typeof outcomeLabels)[keyof typeof outcomeLabels]]
>
const protocols = ["tcp", "udp"] as const

/** Samples of both protocols for each app that has raw ports. */
const perProtocol = (collect: (traffic: RawTraffic, label: LabelText, put: Put) => void) =>
  perApp(({ label, traffic, hasRawPorts }, put) => {
    if (traffic === undefined || !hasRawPorts) return
    for (const protocol of protocols) collect(traffic[protocol], `${label},protocol="${protocol}"`, put)
  })

export const rawPortFamilies: ReadonlyArray<Family<MetricsView>> = [
  counter(
    "nibrunner_raw_port_sessions_total",
    "Connections and clients of UDP by what became of them. down: the app was not there; refused: it could not be woken; unreachable: the guest refused.",
    { app: appLabel, protocol: protocols, outcome: Object.values(outcomeLabels) },
    perProtocol((traffic, label, put) => {
      for (const [key, outcome] of outcomes) put(`${label},outcome="${outcome}"`, traffic[key])
    })
  ),
  gauge(
    "nibrunner_raw_port_sessions_open",
    "Connections that are open, and clients of UDP from or to whom something came in the last minute.",
    { app: appLabel, protocol: protocols },
    perProtocol((traffic, label, put) => put(label, traffic.open))
  ),
  counter(
    "nibrunner_raw_port_bytes_total",
    "Bytes that were carried. in: to the guest.",
    { app: appLabel, protocol: protocols, direction: ["in", "out"] },
    perProtocol((traffic, label, put) => {
      put(`${label},direction="in"`, traffic.bytesIn)
      put(`${label},direction="out"`, traffic.bytesOut)
    })
  ),
  counter(
    "nibrunner_raw_port_dropped_total",
    "Connections and datagrams that found no room.",
    { app: appLabel, protocol: protocols },
    perProtocol((traffic, label, put) => put(label, traffic.dropped))
  )
]
