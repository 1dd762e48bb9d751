/** What comes for the apps over HTTP. */
import { REQUEST_BOUNDS } from "../../services/Proxy.ts"
import { counter, type Family, gauge, histogram, summary } from "../exposition.ts"
import type { MetricsView } from "../view.ts"
import { appLabel, perApp, valueOf } from "./samples.ts"

const outcomeLabels = {
  served: "served",
  unreachable: "unreachable",
  noSuchHost: "no_such_host",
  wrongHost: "wrong_host",
  refused: "refused"
} as const
const outcomes = Object.entries(outcomeLabels) as ReadonlyArray<
  [keyof typeof outcomeLabels, (typeof outcomeLabels)[keyof typeof outcomeLabels]]
>
const handshakeLabels = { completed: "completed", failed: "failed", timedOut: "timed_out" } as const
const handshakes = ["completed", "failed", "timedOut"] as const
const classes = [1, 2, 3, 4, 5] as const

export const proxyFamilies: ReadonlyArray<Family<MetricsView>> = [
  counter(
    "nibrunner_proxy_requests_total",
    "Requests by what became of them: served by an app, whatever its status; unreachable: 502; no_such_host: 404; wrong_host: 421; refused: not a request that can be forwarded, or 503.",
    { outcome: Object.values(outcomeLabels) },
    ({ traffic }, put) => {
      for (const [key, label] of outcomes) put(`outcome="${label}"`, traffic.outcomes[key])
    }
  ),
  histogram(
    "nibrunner_proxy_request_duration_seconds",
    "How long answers of apps took to begin, from the routing of the request; what a request waits for a wake is in it.",
    {},
    REQUEST_BOUNDS,
    ({ traffic }) => traffic.requestSeconds
  ),
  counter(
    "nibrunner_proxy_tls_handshakes_total",
    "TLS handshakes by what became of them; failed: also those whose client showed no certificate that is accepted.",
    { outcome: Object.values(handshakeLabels) },
    ({ traffic }, put) => {
      for (const key of handshakes) put(`outcome="${handshakeLabels[key]}"`, traffic.handshakes[key])
    }
  ),
  gauge(
    "nibrunner_proxy_requests_in_flight",
    "Requests between their routing and the end of both bodies, upgraded connections, and connections to raw ports, over all apps.",
    {},
    ({ traffic }, put) => {
      let open = 0
      for (const app of traffic.apps.values()) open += app.open
      put("", open)
    }
  ),
  counter(
    "nibrunner_app_requests_total",
    "Answers of the app by the class of their status.",
    { app: appLabel, class: classes.map((digit) => `${digit}xx`) },
    perApp(({ label, traffic }, put) => {
      if (traffic === undefined) return
      for (const digit of classes) put(`${label},class="${digit}xx"`, traffic.answers[digit])
    })
  ),
  summary(
    "nibrunner_app_request_duration_seconds",
    "How long the app's answers took to begin, from the routing of the request.",
    { app: appLabel },
    perApp(({ label, traffic }, put) => {
      if (traffic === undefined) return
      put(label, traffic.answerSeconds, "_sum")
      put(
        label,
        classes.reduce((sum, digit) => sum + traffic.answers[digit], 0),
        "_count"
      )
    })
  ),
  counter(
    "nibrunner_app_requests_refused_total",
    "Requests for the app that the proxy answered with 503: it takes none, could not be woken, or has as many as it may.",
    { app: appLabel },
    valueOf(({ traffic }) => traffic?.refused)
  ),
  counter(
    "nibrunner_app_requests_unreachable_total",
    "Requests for the app that the proxy answered with 502.",
    { app: appLabel },
    valueOf(({ traffic }) => traffic?.unreachable)
  ),
  gauge(
    "nibrunner_app_requests_open",
    "What is open for the app: requests until the last byte of both bodies, upgraded connections and connections to raw ports until they close.",
    { app: appLabel },
    valueOf(({ traffic }) => traffic?.open)
  )
]
