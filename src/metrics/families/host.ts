/** The host itself. */
import { counter, type Family, gauge, histogram, labelText } from "../exposition.ts"
import { bounds, reconcileTriggers, startRefusals } from "../host-metrics.ts"
import type { MetricsView } from "../view.ts"
import { oneHot, putTotals, seconds } from "./samples.ts"

const hostStates = ["registering", "ready"] as const
const resources = ["vcpu", "memory", "cache"] as const

export const hostFamilies: ReadonlyArray<Family<MetricsView>> = [
  gauge("nibrunner_up", "1: the daemon has answered.", {}, (_, put) => put("", 1)),
  gauge(
    "nibrunner_build_info",
    "1, with the versions that this host runs; none for what it does not.",
    {
      agent: "version",
      guest_image: "version",
      hypervisor: "version",
      firecracker: "version",
      zerofs: "version"
    },
    ({ host: { versions } }, put) =>
      put(
        labelText({
          agent: versions.agent,
          guest_image: versions.guestImage,
          hypervisor: versions.hypervisor ?? "none",
          firecracker: versions.firecracker,
          zerofs: versions.zerofs
        }),
        1
      )
  ),
  gauge(
    "nibrunner_process_start_time_seconds",
    "When the daemon began, in seconds since 1970.",
    {},
    ({ counts }, put) => put("", counts.startedAt / 1000)
  ),
  gauge(
    "nibrunner_host_state",
    "1 for the state that the report names, 0 for the others.",
    { state: hostStates },
    ({ host }, put) => oneHot(put, "", hostStates, host.state)
  ),
  gauge(
    "nibrunner_host_reconciled",
    "1 once everything that the daemon found at its start was looked at.",
    {},
    ({ status }, put) => put("", status.ready ? 1 : 0)
  ),
  gauge(
    "nibrunner_host_converged",
    "1 while every app and every volume is what the document asks.",
    {},
    ({ converged }, put) => put("", converged ? 1 : 0)
  ),
  gauge(
    "nibrunner_host_capacity",
    "What the host has, in the units of the report: CPUs, MiB of memory for guests, bytes of the filesystem of paths.state_dir.",
    { resource: resources },
    ({ host: { capacity } }, put) => putResources(put, capacity)
  ),
  gauge(
    "nibrunner_host_allocatable",
    "What of it is free, in the same units.",
    { resource: resources },
    ({ host: { allocatable } }, put) => putResources(put, allocatable)
  ),
  gauge(
    "nibrunner_host_memory_available_bytes",
    "Memory that the kernel could give without swapping: its MemAvailable. Absent when it does not say.",
    {},
    ({ memoryAvailableBytes }, put) => {
      if (memoryAvailableBytes !== undefined) put("", memoryAvailableBytes)
    }
  ),
  gauge(
    "nibrunner_slots",
    "Slots that apps hold, and all that there are (max_apps).",
    { of: ["used", "total"] },
    ({ slotsUsed, maxApps }, put) => {
      put('of="used"', slotsUsed)
      put('of="total"', maxApps)
    }
  ),
  counter(
    "nibrunner_start_refusals_total",
    "Starts that had to wait; no_room: the host was short of memory.",
    { reason: startRefusals },
    ({ counts }, put) => putTotals(put, counts.startRefusals)
  ),
  histogram(
    "nibrunner_reconcile_seconds",
    "change: from the reading of a new document until every app that it touches is told; restart: from the daemon's start until everything that it found was looked at; tick: a reading that brought nothing new.",
    { trigger: reconcileTriggers },
    bounds.reconcile,
    ({ counts }) => counts.reconcile
  ),
  gauge(
    "nibrunner_reconcile_last_pass_timestamp_seconds",
    "When the document in force was last read, taken up or looked after, in seconds since 1970; 0 before the first time.",
    {},
    ({ counts }, put) => put("", seconds(counts.reconciledAt))
  ),
  counter(
    "nibrunner_desired_state_unreadable_total",
    "Readings of the document that were refused or that failed, each time that it is read.",
    {},
    ({ counts }, put) => put("", counts.documentsUnreadable)
  ),
  gauge(
    "nibrunner_report_written_timestamp_seconds",
    "When the report was last written, in seconds since 1970; 0 before the first time.",
    {},
    ({ counts }, put) => put("", seconds(counts.reportWrittenAt))
  )
]

const putResources = (
  put: Parameters<Family<MetricsView>["collect"]>[1],
  has: MetricsView["host"]["capacity"]
) => {
  put('resource="vcpu"', has.vcpuCount)
  put('resource="memory"', has.memoryMib)
  put('resource="cache"', has.cacheBytes)
}
