/** Each app that the document names, as the report has it. */
import { InstanceState } from "../../report/schema.ts"
import { counter, type Family, gauge, joinLabels, labelText } from "../exposition.ts"
import { failureReasons } from "../host-metrics.ts"
import type { MetricsView } from "../view.ts"
import { appLabel, healthKinds, oneHot, perApp, seconds, timestamp, valueOf } from "./samples.ts"

export const appFamilies: ReadonlyArray<Family<MetricsView>> = [
  gauge(
    "nibrunner_app_state",
    "1 for the state that the report names, 0 for the others.",
    { app: appLabel, state: InstanceState.literals },
    perApp(({ label, report }, put) => oneHot(put, label, InstanceState.literals, report.state))
  ),
  counter(
    "nibrunner_app_restarts_total",
    "Restarts of the program inside the guest since the microVM last booted.",
    { app: appLabel },
    valueOf(({ report }) => report.restartCount)
  ),
  gauge(
    "nibrunner_app_start_attempts",
    "Starts of the microVM that count against the restart budget.",
    { app: appLabel },
    valueOf(({ attempts }) => attempts)
  ),
  counter(
    "nibrunner_app_failures_total",
    "How often the app was refused, could not be started or ended: got no slot, its layers, its volume or the boot failed, the microVM exited, it never passed its health check, its restart budget was used up.",
    { app: appLabel, reason: failureReasons },
    perApp(({ label, counts }, put) => {
      for (const [reason, total] of counts?.failures.totals ?? [])
        put(joinLabels(label, labelText({ reason })), total)
    })
  ),
  counter(
    "nibrunner_app_unhealthy_total",
    "How often the app became unhealthy, by the kind of its health check.",
    { app: appLabel, kind: healthKinds },
    perApp(({ label, counts }, put) => {
      for (const [kind, total] of counts?.unhealthy.totals ?? [])
        put(joinLabels(label, labelText({ kind })), total)
    })
  ),
  gauge(
    "nibrunner_app_last_healthy_timestamp_seconds",
    "When the health check last passed, in seconds since 1970; 0 for never.",
    { app: appLabel },
    valueOf(({ report }) => timestamp(report.lastHealthyAt))
  ),
  gauge(
    "nibrunner_app_memory_used_bytes",
    "Memory in use inside the guest, as last measured. Absent while there is no measurement.",
    { app: appLabel },
    valueOf(({ report }) => report.compute?.memoryUsedBytes)
  ),
  gauge(
    "nibrunner_app_cpu_share",
    "The busy part of its CPUs' time, 0 to 1, as last measured. Absent while there is no measurement.",
    { app: appLabel },
    valueOf(({ report }) => report.compute?.cpuShare)
  ),
  gauge(
    "nibrunner_app_measured_timestamp_seconds",
    "When the guest was last measured, in seconds since 1970; 0 while there is no measurement.",
    { app: appLabel },
    valueOf(({ report }) => timestamp(report.compute?.measuredAt))
  ),
  counter(
    "nibrunner_app_time_seconds_total",
    "Time that the app has held memory (up) or a snapshot (asleep), since this host first knew it.",
    { app: appLabel, holding: ["memory", "snapshot"] },
    perApp(({ label, meters }, put) => {
      if (meters === undefined) return
      put(`${label},holding="memory"`, seconds(meters.runningMs))
      put(`${label},holding="snapshot"`, seconds(meters.idleMs))
    })
  ),
  counter(
    "nibrunner_app_cpu_seconds_total",
    "CPU time that the app has used, over all its CPUs, since this host first knew it.",
    { app: appLabel },
    valueOf(({ meters }) => (meters === undefined ? undefined : seconds(meters.cpuMs)))
  ),
  counter(
    "nibrunner_app_network_bytes_total",
    "Bytes that reached the guest (in) and that it sent (out), since this host first knew the app.",
    { app: appLabel, direction: ["in", "out"] },
    perApp(({ label, meters }, put) => {
      if (meters === undefined) return
      put(`${label},direction="in"`, meters.rxBytes)
      put(`${label},direction="out"`, meters.txBytes)
    })
  ),
  counter(
    "nibrunner_app_disk_mib_seconds_total",
    "The size of the app's volumes (provisioned), and what is used of them (used), times time, in MiB seconds.",
    { app: appLabel, disk: ["provisioned", "used"] },
    perApp(({ label, meters }, put) => {
      if (meters === undefined) return
      put(`${label},disk="provisioned"`, meters.diskProvisionedMibSeconds)
      put(`${label},disk="used"`, meters.diskUsedMibSeconds)
    })
  )
]
