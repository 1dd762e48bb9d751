/**
 * Our proxy against nginx, in front of the same apps. Each is one process whose data path is one thread; the apps are
 * processes of their own. They are measured one after the other, in turns, so that whatever else the machine does
 * meets both.
 */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Schedule, type Scope } from "effect"
import { ChildProcess, type ChildProcessSpawner } from "effect/process"
import { freePort } from "../scripts/local/host.ts"
import { attempt, Problem } from "../scripts/local/problem.ts"
import { makeCertificate } from "../test/unit/proxy/certificates.ts"
import { answering, type Certificate, forwarding, startNginx } from "./proxy/nginx.ts"
import { h2load, type Rates, wrk } from "./proxy/wrk.ts"
import { type Bench, median } from "./support/bench.ts"

const ROUNDS = 7
const ROUND_SECONDS = 4
const BULK_SECONDS = 3
const WARM_UP_SECONDS = 2
const CONNECTIONS = 32
const BULK_CONNECTIONS = 4
const BULK_BYTES = 67_108_864
const SECURE_ROUNDS = 3
const SECURE_SECONDS = 2
const STREAMS = 8
const BODY = "hello from the app"
/** What /etc/hosts has on every machine, and what needs no entry there. */
const APP_HOST = "127.0.0.1"
const UPLOAD_HOST = "localhost"

const awaitAnswer = (what: string, url: string) =>
  Effect.tryPromise({
    try: async () => {
      const answer = await fetch(url)
      const body = await answer.text()
      if (answer.status !== 200 || body !== BODY) throw new Error(`${answer.status} ${body}`)
    },
    catch: (cause) => new Problem({ message: `${what} does not answer: ${cause}` })
  }).pipe(Effect.retry(Schedule.max([Schedule.spaced("100 millis"), Schedule.recurs(300)])))

const startOwn = (what: string, file: string, ...args: ReadonlyArray<string | number>) =>
  ChildProcess.make(process.execPath, [join(import.meta.dirname, "proxy", file), ...args.map(String)], {
    stdin: "ignore",
    stdout: "ignore",
    stderr: "inherit",
    forceKillAfter: "5 seconds"
  }).pipe(
    Effect.mapError((error) => new Problem({ message: `${what} could not be started: ${error.message}` }))
  )

/** Everything that runs: where nginx and where ours listens, plain and under TLS. */
interface Stage {
  readonly folder: string
  readonly app: string
  readonly nginx: Doors
  readonly ours: Doors
}

interface Doors {
  readonly plain: string
  readonly upload: string
  readonly secure: string
}

const setUp = Effect.gen(function* () {
  const folder = yield* Effect.acquireRelease(
    attempt("no folder for the bench", () => mkdtempSync(join(tmpdir(), "nibrunner-proxy-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const tls: Certificate = { certificate: join(folder, "tls.crt"), key: join(folder, "tls.key") }
  yield* attempt("the bench's files cannot be written", () => {
    const issued = makeCertificate([UPLOAD_HOST])
    writeFileSync(tls.certificate, issued.certificate)
    writeFileSync(tls.key, issued.key)
    // nginx's worker, when root has started it, is another user
    chmodSync(folder, 0o755)
    mkdirSync(join(folder, "app"))
    writeFileSync(join(folder, "app", "large"), Buffer.alloc(BULK_BYTES, "x"))
  })
  const [app = 0, sink = 0, nginx = 0, nginxTls = 0, ours = 0, oursTls = 0] = yield* Effect.all(
    Array.from({ length: 6 }, () => freePort(0))
  )
  yield* startNginx(join(folder, "app"), answering(app, BODY, join(folder, "app")))
  yield* startOwn("the app that takes uploads", "sink.ts", sink)
  yield* startNginx(
    join(folder, "nginx"),
    forwarding({ port: nginx, tlsPort: nginxTls, upstreamPort: app, uploadPort: sink, tls })
  )
  yield* startOwn("the proxy", "serve.ts", ours, APP_HOST, app, UPLOAD_HOST, sink)
  yield* startOwn(
    "the proxy under TLS",
    "serve.ts",
    oursTls,
    UPLOAD_HOST,
    app,
    "uploads.test",
    sink,
    tls.certificate,
    tls.key
  )
  const doors = (plain: number, secure: number): Doors => ({
    plain: `http://${APP_HOST}:${plain}`,
    upload: `http://${UPLOAD_HOST}:${plain}/upload`,
    secure: `https://${UPLOAD_HOST}:${secure}`
  })
  const stage: Stage = {
    folder,
    app: `http://${APP_HOST}:${app}`,
    nginx: doors(nginx, nginxTls),
    ours: doors(ours, oursTls)
  }
  yield* awaitAnswer("the app", `${stage.app}/`)
  yield* awaitAnswer("nginx", `${stage.nginx.plain}/`)
  yield* awaitAnswer("the proxy", `${stage.ours.plain}/`)
  return stage
})

/** The loads of a round, each for either proxy. */
const loads = ({ folder }: Stage) => ({
  small: ({ plain }: Doors) => wrk({ url: `${plain}/`, connections: CONNECTIONS, seconds: ROUND_SECONDS }),
  download: ({ plain }: Doors) =>
    wrk({ url: `${plain}/large`, connections: BULK_CONNECTIONS, seconds: BULK_SECONDS }),
  upload: ({ upload: url }: Doors) =>
    wrk({
      url,
      connections: BULK_CONNECTIONS,
      seconds: BULK_SECONDS,
      upload: { bytes: BULK_BYTES, script: join(folder, "upload.lua") }
    })
})

/** What one round measures of both, `first` first: each load of one next to the same of the other. */
const measure = (stage: Stage, first: Doors, second: Doors) =>
  Effect.gen(function* () {
    const { small, download, upload } = loads(stage)
    const inTurn = (load: typeof small) => Effect.all([load(first), load(second)])
    const [smalls, downloads, uploads] = [
      yield* inTurn(small),
      yield* inTurn(download),
      yield* inTurn(upload)
    ]
    const gigabytes = (rates: Rates) => (rates.requestsPerSecond * BULK_BYTES) / 1e9
    const figures = (at: 0 | 1) => ({
      rps: smalls[at].requestsPerSecond,
      p99: smalls[at].p99,
      download: gigabytes(downloads[at]),
      upload: gigabytes(uploads[at])
    })
    return [figures(0), figures(1)] as const
  })

type Figures = Effect.Success<ReturnType<typeof measure>>[0]

const shown = ({ rps, p99, download, upload }: Figures) =>
  `${rps.toFixed(0)} requests/s, p99 ${p99.toFixed(2)} ms, down ${download.toFixed(2)} GB/s, up ${upload.toFixed(2)} GB/s`

/** Under TLS, for comparison only. */
const compareSecure = (stage: Stage, say: (text: string) => Effect.Effect<void>) =>
  Effect.gen(function* () {
    const https = (doors: Doors) =>
      Effect.map(
        wrk({ url: `${doors.secure}/`, connections: CONNECTIONS, seconds: SECURE_SECONDS }),
        ({ requestsPerSecond }) => requestsPerSecond
      )
    const http2 = (doors: Doors) => h2load(`${doors.secure}/`, CONNECTIONS, STREAMS, SECURE_SECONDS)
    for (const [what, rate] of [
      ["HTTP/1.1 under TLS", https],
      [`HTTP/2, ${STREAMS} at a time on each connection`, http2]
    ] as const) {
      const [theirs, ours]: [Array<number>, Array<number>] = [[], []]
      for (let round = 0; round < SECURE_ROUNDS; round++) {
        theirs.push(yield* rate(stage.nginx))
        ours.push(yield* rate(stage.ours))
      }
      const [nginx, own] = [median(theirs), median(ours)]
      yield* say(
        `${what}: nginx ${nginx.toFixed(0)}, ours ${own.toFixed(0)} requests/s, ${(own / nginx).toFixed(3)}`
      )
    }
  }).pipe(
    Effect.catchIf(
      ({ message }) => /h2load.*(ENOENT|not found)/iu.test(message),
      () => say("HTTP/2 is not compared: there is no h2load here (Debian's nghttp2-client)")
    )
  )

export const bench: Bench = {
  about:
    `${ROUNDS} rounds in turns: our proxy, and nginx (one worker, HTTP/1.1 and kept connections to the app, no access log, nothing ` +
    `buffered), both in front of the same apps. wrk over ${CONNECTIONS} connections that are kept open for an answer of ${BODY.length} ` +
    `bytes, ${ROUND_SECONDS} s; over ${BULK_CONNECTIONS} for bodies of 64 MiB, ${BULK_SECONDS} s down and as long up`,
  run: (say) =>
    Effect.gen(function* (): Effect.fn.Return<
      Effect.Success<ReturnType<Bench["run"]>>,
      Problem,
      Scope.Scope | ChildProcessSpawner.ChildProcessSpawner
    > {
      const stage = yield* setUp
      for (const { plain } of [stage.nginx, stage.ours]) {
        yield* wrk({ url: `${plain}/`, connections: CONNECTIONS, seconds: WARM_UP_SECONDS })
      }
      const alone = yield* wrk({ url: `${stage.app}/`, connections: CONNECTIONS, seconds: WARM_UP_SECONDS })
      yield* say(`the app alone: ${alone.requestsPerSecond.toFixed(0)} requests/s`)
      const ratios: { readonly [figure in keyof Figures]: Array<number> } = {
        rps: [],
        p99: [],
        download: [],
        upload: []
      }
      for (let round = 1; round <= ROUNDS; round++) {
        const theirsFirst = round % 2 === 1
        const [first, second] = yield* theirsFirst
          ? measure(stage, stage.nginx, stage.ours)
          : measure(stage, stage.ours, stage.nginx)
        const [theirs, ours] = theirsFirst ? [first, second] : [second, first]
        for (const figure of ["rps", "p99", "download", "upload"] as const) {
          ratios[figure].push(ours[figure] / theirs[figure])
        }
        yield* say(`round ${round}: nginx ${shown(theirs)}`)
        yield* say(`         ours  ${shown(ours)}`)
      }
      yield* compareSecure(stage, say)
      return {
        rps: { what: "requests a second, ours ÷ nginx", values: ratios.rps, atLeast: 0.8 },
        p99: { what: "the 99th percentile of latency, ours ÷ nginx", values: ratios.p99, atMost: 1.5 },
        download: {
          what: "throughput of 64 MiB answers, ours ÷ nginx",
          values: ratios.download,
          atLeast: 0.8
        },
        upload: { what: "throughput of 64 MiB requests, ours ÷ nginx", values: ratios.upload, atLeast: 0.8 }
      }
    })
}
