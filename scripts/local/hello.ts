/** The example app of `examples/hello`: its program and its document. */
import { createHash } from "node:crypto"
import { mkdirSync, readFileSync, renameSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect, Schema } from "effect"
import {
  DeploymentId,
  type DesiredInstance,
  type DesiredInstanceState,
  HostDesiredState
} from "../../src/document/schema.ts"
import { checkout, type LocalHost } from "./host.ts"
import { attempt, Problem, tool } from "./problem.ts"

const folder = join(checkout, "examples/hello")

const template = attempt("the example's document cannot be read", () =>
  readFileSync(join(folder, "desired.json"), "utf8")
).pipe(
  Effect.flatMap((text) => Schema.decodeUnknownEffect(Schema.fromJsonString(HostDesiredState))(text)),
  Effect.catchTag(
    "SchemaError",
    (error) => new Problem({ message: `the example's document: ${error.message}` })
  )
)

/** What the example's document names, for whoever shows it. */
export interface Hello {
  readonly appId: string
  readonly hostname: string
  readonly volumeId: string
  readonly healthPath: string
  readonly document: (state: DesiredInstanceState) => HostDesiredState
}

/** What puts an app to sleep goes with `on-request` alone. */
const asAsked = (
  { activation, ...instance }: DesiredInstance,
  desiredState: DesiredInstanceState
): DesiredInstance =>
  desiredState === "on-request" && activation !== undefined
    ? { ...instance, desiredState, activation }
    : { ...instance, desiredState }

/** Compiles the program, puts it into the host's artifact store and gives the document that deploys it. */
export const prepareHello = (host: LocalHost) =>
  Effect.gen(function* () {
    const desired = yield* template
    const [instance] = desired.instances
    const [layer] = instance?.layers ?? []
    const [hostname] = instance?.hostnames ?? []
    const check = instance?.config.healthCheck
    if (!instance || !layer || !hostname || check?.kind !== "http") {
      return yield* new Problem({
        message: "the example's document must name an app, a layer and a hostname"
      })
    }

    const object = join(host.artifacts, layer.objectKey)
    const half = `${object}.new`
    yield* attempt("the example cannot be put into the store", () =>
      mkdirSync(dirname(object), { recursive: true })
    )
    yield* tool("musl-gcc", ["-static", "-Os", "-o", half, join(folder, "hello.c")])
    const digest = yield* attempt("the example cannot be put into the store", () => {
      renameSync(half, object)
      return createHash("sha256").update(readFileSync(object)).digest("hex")
    })

    // a changed program is a new release
    const deploymentId = DeploymentId.make(`hello-${digest.slice(0, 12)}`)

    const hello: Hello = {
      appId: instance.appId,
      hostname: hostname.hostname,
      volumeId: instance.volumeId,
      healthPath: check.path,
      document: (desiredState) => ({
        ...desired,
        instances: [{ ...asAsked(instance, desiredState), deploymentId, layers: [{ ...layer, digest }] }]
      })
    }
    return hello
  })
