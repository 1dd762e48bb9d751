/** What every keeper of apps' logs must do. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, type Layer, type Scope } from "effect"
import { TestClock } from "effect/testing"
import { AppId } from "../../src/document/schema.ts"
import { type AppLog, AppLogs } from "../../src/services/AppLogs.ts"

export interface AppLogsHarness {
  readonly layer: Layer.Layer<AppLogs, unknown>
  /** All records of an app, oldest first, each as its line in the file. */
  readonly records: (appId: AppId) => Effect.Effect<ReadonlyArray<string>>
}

const web = AppId.make("web")
const bytes = (text: string) => new TextEncoder().encode(text)

export const appLogsConformance = (name: string, make: Effect.Effect<AppLogsHarness, unknown, Scope.Scope>) =>
  describe(`${name} as the keeper of apps' logs`, () => {
    /** Opens a session `s1` of the app `web`, closes it after `body`, and gives the records without their header. */
    const written = (
      body: (log: AppLog) => Effect.Effect<void>
    ): Effect.Effect<ReadonlyArray<string>, unknown, Scope.Scope> =>
      Effect.flatMap(make, ({ layer, records }) =>
        Effect.scoped(
          AppLogs.use((logs) => logs.open(web, "s1")).pipe(Effect.flatMap(body), Effect.provide(layer))
        ).pipe(Effect.andThen(records(web)))
      )

    const T = "1970-01-01T00:00:00"

    it.effect("writes time, stream, session and sequence, then the text", () =>
      Effect.gen(function* () {
        const records = yield* written((log) =>
          Effect.gen(function* () {
            yield* log.output("stdout", bytes("hello\nworld\n"))
            yield* TestClock.adjust("1234 millis")
            yield* log.output("stderr", bytes("oops\n"))
          })
        )
        assert.deepStrictEqual(records, [
          `${T}.000Z stdout s1/0 hello`,
          `${T}.000Z stdout s1/1 world`,
          `1970-01-01T00:00:01.234Z stderr s1/2 oops`
        ])
      })
    )

    it.effect("puts a line together that comes in pieces, each stream for itself", () =>
      Effect.gen(function* () {
        const records = yield* written((log) =>
          Effect.gen(function* () {
            yield* log.output("stdout", bytes("one "))
            yield* log.output("stderr", bytes("other "))
            yield* log.output("stdout", bytes("line\n\nnext"))
            yield* log.output("stderr", bytes("line\n"))
          })
        )
        assert.deepStrictEqual(records, [
          `${T}.000Z stdout s1/0 one line`,
          `${T}.000Z stdout s1/1 `,
          `${T}.000Z stderr s1/2 other line`,
          `${T}.000Z stdout s1/3 next`
        ])
      })
    )

    it.effect(
      "writes an unfinished line after 250 ms of quiet, and no record for the newline that ends it",
      () =>
        Effect.gen(function* () {
          const records = yield* written((log) =>
            Effect.gen(function* () {
              yield* log.output("stdout", bytes("pro"))
              yield* TestClock.adjust("249 millis")
              yield* log.output("stdout", bytes("mpt> "))
              yield* TestClock.adjust("249 millis")
              yield* log.output("stderr", bytes("not yet\n"))
              yield* TestClock.adjust("1 millis")
              yield* TestClock.adjust("1 minute")
              yield* log.output("stdout", bytes("\ndone\n"))
            })
          )
          assert.deepStrictEqual(records, [
            `${T}.498Z stderr s1/0 not yet`,
            `${T}.499Z stdout s1/1 prompt> `,
            `1970-01-01T00:01:00.499Z stdout s1/2 done`
          ])
        })
    )

    it.effect("never splits a character, neither between pieces nor when the quiet comes in its middle", () =>
      Effect.gen(function* () {
        const euro = bytes("€")
        const records = yield* written((log) =>
          Effect.gen(function* () {
            yield* log.output("stdout", bytes("5 "))
            yield* log.output("stdout", euro.subarray(0, 1))
            yield* log.output("stdout", euro.subarray(1))
            yield* log.output("stdout", bytes("\n6 "))
            yield* log.output("stdout", euro.subarray(0, 2))
            yield* TestClock.adjust("250 millis")
            yield* log.output("stdout", euro.subarray(2))
            yield* log.output("stdout", bytes("\n"))
          })
        )
        assert.deepStrictEqual(records, [
          `${T}.000Z stdout s1/0 5 €`,
          `${T}.250Z stdout s1/1 6 `,
          `${T}.250Z stdout s1/2 €`
        ])
      })
    )

    it.effect("replaces what is not UTF-8", () =>
      Effect.gen(function* () {
        const records = yield* written((log) =>
          log.output("stdout", Uint8Array.of(0x61, 0xff, 0x62, 0xc3, 0x0a, 0xe2, 0x82, 0x0a, 0xf0, 0x9f))
        )
        assert.deepStrictEqual(records, [
          `${T}.000Z stdout s1/0 a\ufffdb\ufffd`,
          `${T}.000Z stdout s1/1 \ufffd`,
          `${T}.000Z stdout s1/2 \ufffd`
        ])
      })
    )

    it.effect("cuts a line at 64 KiB, between characters, and one of exactly 64 KiB not at all", () =>
      Effect.gen(function* () {
        const records = yield* written((log) =>
          Effect.gen(function* () {
            yield* log.output("stdout", bytes(`${"a".repeat(65536)}\n`))
            yield* log.output("stdout", bytes(`${"b".repeat(65535)}€${"c".repeat(65536)}`))
          })
        )
        assert.deepStrictEqual(
          records.map((record) => record.slice(`${T}.000Z stdout s1/0 `.length)),
          ["a".repeat(65536), "b".repeat(65535), `€${"c".repeat(65533)}`, "ccc"]
        )
      })
    )

    it.effect("tells how much was lost, and the host's own word, after what came before", () =>
      Effect.gen(function* () {
        const records = yield* written((log) =>
          Effect.gen(function* () {
            yield* log.output("stdout", bytes("half"))
            yield* log.gap(1234)
            yield* log.output("stderr", bytes("rest\nbye"))
            yield* log.note("the program exited with code 1 and is started again in 500 ms\n(attempt 1 of 3)")
          })
        )
        assert.deepStrictEqual(records, [
          `${T}.000Z stdout s1/0 half`,
          `${T}.000Z stderr s1/1 [nibrun] 1234 bytes of output were lost here`,
          `${T}.000Z stderr s1/2 rest`,
          `${T}.000Z stderr s1/3 bye`,
          `${T}.000Z stderr s1/4 [nibrun] the program exited with code 1 and is started again in 500 ms\\x0a(attempt 1 of 3)`
        ])
      })
    )

    it.effect("lets no program forge a record, a word of the host's, or a command to a terminal", () =>
      Effect.gen(function* () {
        const records = yield* written((log) =>
          log.output(
            "stderr",
            bytes(
              "dos\r\na\rb\u001b[2Jc\0d\te\u007f\u009b\u0085\n[nibrun] all is well\nx [nibrun] y\n\u2028z\u2029\v\f"
            )
          )
        )
        assert.deepStrictEqual(records, [
          `${T}.000Z stderr s1/0 dos`,
          `${T}.000Z stderr s1/1 a\\x0db\\x1b[2Jc\\x00d\te\\x7f\\x9b\\x85`,
          `${T}.000Z stderr s1/2 \\x5bnibrun] all is well`,
          `${T}.000Z stderr s1/3 x [nibrun] y`,
          `${T}.000Z stderr s1/4 \\u2028z\\u2029\\x0b\\x0c`
        ])
      })
    )

    it.effect("keeps what earlier sessions wrote, and counts each session from 0", () =>
      Effect.gen(function* () {
        const { layer, records } = yield* make
        for (const session of ["s1", "s2"]) {
          yield* Effect.scoped(
            AppLogs.use((logs) => logs.open(web, session)).pipe(
              Effect.flatMap((log) => log.output("stdout", bytes(`${session}\n`))),
              Effect.provide(layer)
            )
          )
        }
        assert.deepStrictEqual(yield* records(web), [`${T}.000Z stdout s1/0 s1`, `${T}.000Z stdout s2/0 s2`])
      })
    )

    it.effect("keeps two sessions of one app apart that are open at the same time, line by line", () =>
      Effect.gen(function* () {
        const { layer, records } = yield* make
        yield* Effect.scoped(
          Effect.gen(function* () {
            const logs = yield* AppLogs
            const [first, second] = [yield* logs.open(web, "s1"), yield* logs.open(web, "s2")]
            const write = (log: AppLog) =>
              Effect.forEach(
                Array.from({ length: 200 }),
                (_, n) => log.output("stdout", bytes(`line ${n}\n`)),
                {
                  discard: true
                }
              )
            yield* Effect.all([write(first), write(second)], { concurrency: "unbounded" })
          }).pipe(Effect.provide(layer))
        )
        const all = yield* records(web)
        for (const session of ["s1", "s2"]) {
          assert.deepStrictEqual(
            all.filter((record) => record.includes(` ${session}/`)),
            Array.from({ length: 200 }, (_, n) => `${T}.000Z stdout ${session}/${n} line ${n}`)
          )
        }
        assert.strictEqual(all.length, 400)
      })
    )

    it.effect("deletes one app's log and no other, without an error when there is none", () =>
      Effect.gen(function* () {
        const { layer, records } = yield* make
        const other = AppId.make("other")
        yield* Effect.gen(function* () {
          const logs = yield* AppLogs
          for (const appId of [web, other]) {
            yield* Effect.scoped(
              Effect.flatMap(logs.open(appId, "s1"), (log) => log.output("stdout", bytes("x\n")))
            )
          }
          yield* logs.forget(web)
          yield* logs.forget(web)
          yield* logs.forget(AppId.make("never"))
        }).pipe(Effect.provide(layer))
        assert.deepStrictEqual(yield* records(web), [])
        assert.strictEqual((yield* records(other)).length, 1)
      })
    )
  })
