import { type JsonSchemaObject, jsonSchemaOf } from "../document/json-schema.ts"
import { ZEROFS_METRICS_PORT } from "./rules.ts"
import { HostConfig } from "./schema.ts"

const onZerofs = { properties: { volumes: { properties: { backend: { const: "zerofs" } } } } }

const rules: ReadonlyArray<JsonSchemaObject> = [
  {
    description:
      "The zerofs backend needs volumes.zerofs and exports; on local-file volumes.zerofs has no meaning.",
    if: onZerofs,
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: { required: ["exports"], properties: { volumes: { required: ["zerofs"] } } },
    else: { properties: { volumes: { not: { required: ["zerofs"] } } } }
  },
  {
    description: `ZeroFS serves its own metrics on ${ZEROFS_METRICS_PORT}.`,
    if: onZerofs,
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: {
      properties: { metrics: { properties: { port: { not: { const: ZEROFS_METRICS_PORT } } } } }
    }
  },
  {
    description: "Firecracker has no user network.",
    if: {
      properties: {
        hypervisor: { properties: { backend: { const: "firecracker" } }, required: ["backend"] }
      },
      required: ["hypervisor"]
    },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: { properties: { hypervisor: { properties: { network: { const: "tap" } } } } }
  }
]

/** What a schema cannot say of `config.toml`, and the decoder refuses nevertheless. */
export const UNSAYABLE_OF_CONFIG = [
  "proxy.http.port or metrics.port among the ports of apps, which depend on max_apps",
  "metrics.port equal to proxy.http.port",
  "one directory for two of paths.state_dir, runtime_dir, snapshot_dir and zerofs.checkpoint_runtime_dir",
  "a time zone that does not exist",
  "volumes.storage_prefix or the path of a socket whose bytes are too many, but its characters not"
] as const

/** What the decoder takes though the schema does not: white space around a text is dropped before it is looked at. */
export const TAKEN_NEVERTHELESS = ["white space around a text"] as const

/** The JSON Schema of `config.toml`, read as the JSON that its TOML stands for. */
export const configJsonSchema = (): JsonSchemaObject =>
  jsonSchemaOf(HostConfig, { closed: true, rules: { HostConfig: rules } })
