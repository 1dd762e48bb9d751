/** The proxy in a process of its own: `serve.ts <port> <hostname> <upstream port>`. Prints a line once it serves. */
import { Effect, Layer } from "effect"
import { layerProxy } from "../../layers/proxy/layer.ts"
import { AppId } from "../../src/document/schema.ts"
import { Proxy } from "../../src/services/Proxy.ts"

const [port, hostname, upstreamPort] = process.argv.slice(2)

const route = Layer.effectDiscard(
  Effect.gen(function* () {
    const proxy = yield* Proxy
    yield* proxy.setRoute({
      appId: AppId.make("bench"),
      hostnames: [hostname ?? "localhost"],
      target: { kind: "up", host: "127.0.0.1", port: Number(upstreamPort) }
    })
    process.stdout.write("serving\n")
  })
)

Effect.runFork(
  Layer.launch(
    route.pipe(Layer.provide(layerProxy({ listen: { address: "127.0.0.1", port: Number(port) } })))
  )
)
