/** Documents that are right, and ways to make them wrong. */
import fc from "fast-check"

/** Stands in every environment value and argument, so that a leak of one is seen. */
export const SECRET = "hunter2-correct-horse"

const id = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9_-]{0,8}$/u)
const digest = fc.stringMatching(/^[0-9a-f]{64}$/u)
const path = fc.stringMatching(/^(\/[a-z.é]{1,6}x){1,3}$/u)
const count = fc.nat({ max: 100_000 })

const environment = fc.dictionary(
  fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,8}$/u),
  fc.constantFrom(SECRET, `${SECRET}$NIBRUN_HOSTNAME`, `\${NIBRUN_HTTP_PORT}${SECRET}`, `$HOME${SECRET}`),
  { maxKeys: 3 }
)

const layer = fc.oneof(
  fc.record({
    kind: fc.constant("filesystem"),
    digest,
    objectKey: fc.string({ minLength: 1, maxLength: 9 })
  }),
  fc.record({ kind: fc.constant("executable"), digest, objectKey: id, destinationPath: path })
)

const probes = {
  intervalMs: count,
  timeoutMs: count,
  gracePeriodMs: count,
  healthyThreshold: count,
  unhealthyThreshold: count
}
const healthCheck = fc.oneof(
  fc.record({ kind: fc.constant("http"), path: fc.constant("/healthz"), ...probes }),
  fc.record({ kind: fc.constant("tcp"), ...probes }),
  fc.record({ kind: fc.constant("boot-completed") })
)

const appConfig = fc.record(
  {
    httpPort: fc.integer({ min: 1, max: 65535 }),
    command: fc.record({
      program: path,
      args: fc.array(fc.constantFrom(SECRET, `--password=${SECRET}`), { maxLength: 3 }),
      workingDirectory: path,
      environment
    }),
    resources: fc.record({ vcpuCount: count, memoryMib: count }),
    healthCheck,
    restartPolicy: fc.record({
      maxRestarts: count,
      initialBackoffMs: count,
      maxBackoffMs: count,
      backoffFactor: fc.constantFrom(1, 1.5, 2, 0, -1),
      resetAfterMs: count
    }),
    ports: fc.array(
      fc.record({
        name: fc.stringMatching(/^[a-z][a-z0-9-]{0,15}$/u),
        guestPort: fc.integer({ min: 1, max: 65535 })
      }),
      { maxLength: 2 }
    )
  },
  { requiredKeys: ["httpPort", "command", "resources", "healthCheck", "restartPolicy"] }
)

const sleep = fc.oneof(
  fc.constant({ desiredState: "running" }),
  fc.constant({ desiredState: "stopped", activation: { sleepWhen: { kind: "never" } } }),
  fc.constant({ desiredState: "on-request", activation: null, idleTimeoutMs: 60_000 }),
  fc.record({
    desiredState: fc.constant("on-request"),
    activation: fc.record({
      sleepWhen: fc.record({
        kind: fc.constant("max-lifetime"),
        ttlMs: fc.integer({ min: 60_000, max: 604_800_000 })
      })
    })
  })
)

/** A document that is accepted: up to four apps, each with a volume, some with checkpoints and exports. */
export const documents: fc.Arbitrary<unknown> = fc
  .record({
    hostId: id,
    revision: fc.option(fc.stringMatching(/^[!-~]{1,12}$/u), { nil: undefined }),
    apps: fc.uniqueArray(id, { maxLength: 4 }),
    parts: fc.array(
      fc.record({
        config: appConfig,
        layers: fc.array(layer, { minLength: 1, maxLength: 3 }),
        sleep,
        deploymentId: id,
        sizeBytes: fc.nat(),
        seed: fc.option(fc.record({ digest, objectKey: id, destinationPath: path }), { nil: null }),
        hasCheckpoint: fc.boolean(),
        exportEnvironment: fc.option(environment, { nil: null }),
        unknown: fc.jsonValue({ maxDepth: 2 })
      }),
      { minLength: 4, maxLength: 4 }
    )
  })
  .map(({ apps, hostId, parts, revision }) => {
    const items = apps.flatMap((appId, n) => {
      const part = parts[n]
      return part === undefined ? [] : [{ appId, n, part }]
    })
    return {
      hostId,
      ...(revision === undefined ? {} : { revision }),
      volumes: items.map(({ appId, n, part }) => ({
        volumeId: `v${n}`,
        appId,
        sizeBytes: part.sizeBytes,
        desiredState: n % 2 === 0 ? "present" : "absent",
        initialContents: part.seed
      })),
      instances: items.map(({ appId, n, part }) => ({
        appId,
        deploymentId: part.deploymentId,
        volumeId: `v${n}`,
        layers: part.layers,
        config: part.config,
        hostnames: [{ hostname: `h${n}.example.com`, kind: "platform" }],
        ...part.sleep,
        x: part.unknown
      })),
      checkpoints: items.flatMap(({ n, part }) =>
        part.hasCheckpoint ? [{ checkpointId: `c${n}`, volumeId: `v${n}`, desiredState: "present" }] : []
      ),
      exports: items.map(({ appId, n, part }) => ({
        exportId: `e${n}`,
        appId,
        volumeId: `v${n}`,
        objectKey: "k",
        desiredState: "present",
        environment: part.exportEnvironment
      }))
    }
  })

type Json = Record<string, unknown> | ReadonlyArray<unknown>
const isContainer = (value: unknown): value is Json => typeof value === "object" && value !== null

/** Every place in a value: who holds it and under which key. */
const places = (root: unknown): ReadonlyArray<readonly [holder: Json, key: string]> =>
  isContainer(root)
    ? Object.entries(root).flatMap(([key, member]) => [[root, key] as const, ...places(member)])
    : []

const replacements: ReadonlyArray<unknown> = [
  null,
  true,
  0,
  -1,
  1.5,
  60_000,
  70_000,
  2 ** 53,
  "",
  "x",
  "running",
  "never",
  "/sbin/init",
  "a.example.com",
  "UPPER",
  "😀".repeat(260),
  "y".repeat(40_000),
  "$NIBRUN_NOPE",
  "\ud800",
  [],
  ["a"],
  {},
  { kind: "tcp" },
  { kind: "never" },
  { "A-B": "v" },
  { sleepWhen: { kind: "traffic-idle", timeoutMs: 60_000 } }
]

export type Mutation = readonly [place: number, change: number]

/** What to do, at which place: both counted round the places and changes that there are. */
export const mutations: fc.Arbitrary<ReadonlyArray<Mutation>> = fc.array(fc.tuple(fc.nat(), fc.nat()), {
  maxLength: 3
})

/** A copy of a document with values replaced, taken away, or put in twice. */
export const mutated = (document: unknown, changes: ReadonlyArray<Mutation>): unknown => {
  const copy: unknown = structuredClone(document)
  for (const [where, what] of changes) {
    const all = places(copy)
    const place = all[where % Math.max(1, all.length)]
    if (place === undefined) break
    const [holder, key] = place as readonly [Record<string, unknown>, string]
    const change = what % (replacements.length + 2)
    if (change < replacements.length) holder[key] = structuredClone(replacements[change])
    else if (Array.isArray(holder)) {
      if (change === replacements.length) holder.splice(Number(key), 1)
      else holder.push(structuredClone(holder[Number(key)]))
    } else if (change === replacements.length) delete holder[key]
    else holder[`${key}X`] = structuredClone(holder[key])
  }
  return copy
}

export type TextMutation = readonly [place: number, change: number]
export const textMutation: fc.Arbitrary<TextMutation> = fc.tuple(fc.nat(), fc.nat())
const characters = [
  '"',
  "{",
  "}",
  "[",
  "]",
  ":",
  ",",
  "\\",
  "a",
  "0",
  "-",
  " ",
  "\n",
  "\u0000",
  "é",
  "\ud800",
  "u",
  "="
]

/** A text with one character replaced, put in or taken away, or cut off there. */
export const mutatedText = (text: string, [where, what]: TextMutation): string => {
  const at = where % (text.length + 1)
  const character = characters[Math.floor(what / 4) % characters.length] ?? ""
  const tail = [text.slice(at), text.slice(at + 1), `${character}${text.slice(at)}`, ""][what % 4]
  return what % 8 === 1
    ? `${text.slice(0, at)}${character}${text.slice(at + 1)}`
    : `${text.slice(0, at)}${tail}`
}
