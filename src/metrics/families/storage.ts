/** Layers, volumes, checkpoints and exports. */
import { CheckpointReport, ExportReport, VolumeReport } from "../../report/schema.ts"
import { counter, type Family, gauge, histogram, labelText } from "../exposition.ts"
import { bounds, operationOutcomes, storageOperations } from "../host-metrics.ts"
import type { MetricsView } from "../view.ts"
import { appLabel, oneHot } from "./samples.ts"

const volumeLabels = { volume: "its volumeId", app: appLabel }
const volumeStates = VolumeReport.fields.state.literals
const checkpointStates = CheckpointReport.fields.state.literals
const exportStates = ExportReport.fields.state.literals

export const storageFamilies: ReadonlyArray<Family<MetricsView>> = [
  histogram(
    "nibrunner_storage_operation_seconds",
    "How long operations on layers, volumes, checkpoints and exports took. One that was given up is not counted.",
    { operation: storageOperations, outcome: operationOutcomes },
    bounds.storage,
    ({ counts }) => counts.storage
  ),
  counter(
    "nibrunner_layers_cached_total",
    "Layers of starts for which nothing had to be fetched.",
    {},
    ({ counts }, put) => put("", counts.layersCached)
  ),
  counter(
    "nibrunner_layer_fetch_bytes_total",
    "Bytes fetched from the artifact store, those of fetches that failed included.",
    {},
    ({ counts }, put) => put("", counts.layerFetchBytes)
  ),
  gauge(
    "nibrunner_volume_state",
    "1 for the state that the report names, 0 for the others.",
    { ...volumeLabels, state: volumeStates },
    ({ volumes }, put) => {
      for (const { label, report } of volumes) oneHot(put, label, volumeStates, report.state)
    }
  ),
  gauge(
    "nibrunner_volume_size_bytes",
    "The size of the volume's device.",
    volumeLabels,
    ({ volumes }, put) => {
      for (const { label, report } of volumes) put(label, report.sizeBytes)
    }
  ),
  gauge(
    "nibrunner_volume_used_bytes",
    "What is in the volume's filesystem, as last measured. Absent before the first measurement.",
    volumeLabels,
    ({ volumes }, put) => {
      for (const { label, report } of volumes)
        if (report.usage !== undefined) put(label, report.usage.usedBytes)
    }
  ),
  gauge(
    "nibrunner_checkpoint_state",
    "1 for the state that the report names, 0 for the others.",
    { checkpoint: "its checkpointId", volume: "its volumeId", state: checkpointStates },
    ({ host: { checkpoints } }, put) => {
      for (const { checkpointId, volumeId, state } of checkpoints) {
        oneHot(put, labelText({ checkpoint: checkpointId, volume: volumeId }), checkpointStates, state)
      }
    }
  ),
  gauge(
    "nibrunner_export_state",
    "1 for the state that the report names, 0 for the others.",
    { export: "its exportId", state: exportStates },
    ({ host: { exports } }, put) => {
      for (const { exportId, state } of exports)
        oneHot(put, labelText({ export: exportId }), exportStates, state)
    }
  ),
  gauge(
    "nibrunner_export_size_bytes",
    "The size of the bundle. Absent until it is written.",
    { export: "its exportId" },
    ({ host: { exports } }, put) => {
      for (const { exportId, sizeBytes } of exports)
        if (sizeBytes !== undefined) put(labelText({ export: exportId }), sizeBytes)
    }
  )
]
