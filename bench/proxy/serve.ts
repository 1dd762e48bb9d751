/**
 * The proxy in a process of its own:
 *
 *     serve.ts PORT HOSTNAME APP_PORT [UPLOAD_HOSTNAME UPLOAD_PORT] [CERTIFICATE KEY]
 *
 * Requests for the second hostname go to the second port. Prints a line once it serves.
 */
import { Effect, Layer } from "effect"
import { layerProxy } from "../../layers/proxy/layer.ts"
import { AppId } from "../../src/document/schema.ts"
import { Proxy } from "../../src/services/Proxy.ts"

const [port, hostname, appPort, uploadHostname, uploadPort, certificate, key] = process.argv.slice(2)

const route = Layer.effectDiscard(
  Effect.gen(function* () {
    const proxy = yield* Proxy
    yield* proxy.setRoute({
      appId: AppId.make("bench"),
      hostnames: [hostname ?? "localhost"],
      target: { kind: "up", host: "127.0.0.1", port: Number(appPort) }
    })
    yield* proxy.setRoute({
      appId: AppId.make("uploads"),
      hostnames: uploadHostname === undefined ? [] : [uploadHostname],
      target: { kind: "up", host: "127.0.0.1", port: Number(uploadPort) }
    })
    process.stdout.write("serving\n")
  })
)

const tls = certificate === undefined || key === undefined ? undefined : { certificate, key }

Effect.runFork(
  Layer.launch(
    route.pipe(Layer.provide(layerProxy({ listen: { address: "127.0.0.1", port: Number(port) }, tls })))
  )
)
