/** Sleep and wake. */
import { counter, type Family, gauge, histogram } from "../exposition.ts"
import { bounds, discardReasons, sleepOutcomes, wakeOutcomes, wakeRefusals } from "../host-metrics.ts"
import type { MetricsView } from "../view.ts"
import { appLabel, perApp, putTotals } from "./samples.ts"

const sleepReasons = ["idle", "max-lifetime", "forced"] as const

export const sleepFamilies: ReadonlyArray<Family<MetricsView>> = [
  counter(
    "nibrunner_app_wakes_total",
    "How often the app came up after it slept. restored: from its snapshot; cold_boot: there was none that could be woken.",
    { app: appLabel, outcome: wakeOutcomes },
    perApp(({ label, counts }, put) => {
      if (counts !== undefined) putTotals(put, counts.wakes, label)
    })
  ),
  counter(
    "nibrunner_app_sleeps_total",
    "How often the app was to be put to sleep. refused: something came for it; failed: it is up nonetheless.",
    { app: appLabel, outcome: sleepOutcomes },
    perApp(({ label, counts }, put) => {
      if (counts !== undefined) putTotals(put, counts.sleeps, label)
    })
  ),
  gauge(
    "nibrunner_app_last_wake_seconds",
    "How long the app's last wake took, from the first that came for it until its health check passed. Absent before the first.",
    { app: appLabel },
    perApp(({ label, counts }, put) => {
      if (counts?.lastWakeSeconds !== undefined) put(label, counts.lastWakeSeconds)
    })
  ),
  gauge(
    "nibrunner_app_last_sleep_seconds",
    "How long it took to put the app to sleep the last time. Absent before the first.",
    { app: appLabel },
    perApp(({ label, counts }, put) => {
      if (counts?.lastSleepSeconds !== undefined) put(label, counts.lastSleepSeconds)
    })
  ),
  counter(
    "nibrunner_sleep_outcomes_total",
    "Attempts to put an app to sleep, by why and by what came of them.",
    { reason: sleepReasons, outcome: sleepOutcomes },
    ({ counts }, put) => putTotals(put, counts.sleepOutcomes)
  ),
  histogram(
    "nibrunner_vm_snapshot_duration_seconds",
    "How long it took to put microVMs to sleep, from the moment that what comes is held until the snapshot is on the disk.",
    {},
    bounds.sleep,
    ({ counts }) => counts.snapshot
  ),
  histogram(
    "nibrunner_vm_restore_duration_seconds",
    "How long it took to restore microVMs, until their guest has answered.",
    {},
    bounds.wake,
    ({ counts }) => counts.restore
  ),
  histogram(
    "nibrunner_wake_duration_seconds",
    "How long wakes took, from the first that came for the app until its health check passed.",
    { outcome: wakeOutcomes },
    bounds.wake,
    ({ counts }) => counts.wake
  ),
  counter(
    "nibrunner_wake_requests_coalesced_total",
    "What came for an app that was not up and joined the wake that was under way for another: requests, connections to raw ports and clients of UDP.",
    {},
    ({ traffic }, put) => put("", traffic.joinedWakes)
  ),
  counter(
    "nibrunner_wake_refusals_total",
    "Wakes that did not bring the app up. no_room: the host was short of memory; would_not_start: neither its snapshot nor a boot brought it up.",
    { reason: wakeRefusals },
    ({ counts }, put) => putTotals(put, counts.wakeRefusals)
  ),
  counter(
    "nibrunner_snapshots_discarded_total",
    "Snapshots that nothing was woken from. missing: it was not there; damaged: a bit of it was not what was written; foreign: it was made under another deployment, guest image, slot or hypervisor; not_restored: the microVM did not come up from it.",
    { reason: discardReasons },
    ({ counts }, put) => putTotals(put, counts.snapshotsDiscarded)
  )
]
