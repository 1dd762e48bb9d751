/** Bundles written by the program of the guest image that reads volumes (`guest/bundle`). */
import { Deferred, Effect, Layer, Ref, Schema, Stream } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"
import { type Bundle, BundleError, BundleWriter, type LeftOut } from "../../src/services/BundleWriter.ts"
import { GuestImage } from "../../src/services/GuestImage.ts"

/** As gzip's own: a higher one takes long for little. */
export const GZIP_LEVEL = 6
/** Characters of what the program says that are kept. */
const KEPT = 8192
/** A program that gives nothing for so long is stuck. The server of the checkpoint may be as slow as a minute or five. */
const SILENCE = "15 minutes"

const Header = Schema.fromJsonString(Schema.Struct({ usedBytes: Schema.Finite }))
const Trailer = Schema.fromJsonString(
  Schema.Struct({ sockets: Schema.Int, fifos: Schema.Int, devices: Schema.Int })
)
const headerOf = Schema.decodeUnknownOption(Header)
const trailerOf = Schema.decodeUnknownOption(Trailer)

const refuse = (reason: string) => new BundleError({ reason })

/** The last line that is no number of ours: why it gave up. */
const lastWord = (said: string): string =>
  said
    .split("\n")
    .findLast((line) => line.trim() !== "" && !line.startsWith("{"))
    ?.slice(0, 300) ?? "its program ended without a word"

export const layerBundleProgram = Layer.effect(
  BundleWriter,
  Effect.gen(function* () {
    const { volumeBundle } = yield* GuestImage
    const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
    return {
      open: Effect.fnUntraced(function* ({ volume, environment, at }) {
        const child = yield* spawner
          .spawn(
            ChildProcess.make(
              volumeBundle,
              [
                ...[volume.socketPath, volume.exportName, String(GZIP_LEVEL)],
                ...(environment === undefined ? [] : [String(Math.floor(at / 1000))])
              ],
              {
                stdin:
                  environment === undefined ? "ignore" : Stream.make(new TextEncoder().encode(environment)),
                env: { PATH: `${process.env.PATH ?? ""}:/usr/bin:/bin` },
                forceKillAfter: "2 seconds"
              }
            )
          )
          .pipe(Effect.mapError((error) => refuse(`its program could not be run: ${error.message}`)))
        const said = yield* Ref.make("")
        const begun = yield* Deferred.make<number, BundleError>()
        const silent = yield* Deferred.make<void>()
        yield* child.stderr.pipe(
          Stream.decodeText(),
          Stream.splitLines,
          Stream.runForEach((line) =>
            Effect.gen(function* () {
              yield* Ref.update(said, (kept) => `${kept}${line}\n`.slice(-KEPT))
              const header = headerOf(line)
              if (header._tag === "Some") yield* Deferred.succeed(begun, header.value.usedBytes)
            })
          ),
          Effect.ignore,
          Effect.andThen(Ref.get(said)),
          Effect.flatMap((words) => Deferred.fail(begun, refuse(lastWord(words)))),
          Effect.andThen(Deferred.succeed(silent, undefined)),
          Effect.forkScoped
        )

        const leftOut = yield* Deferred.make<LeftOut>()
        /** The stream ends well only when the program did: half a bundle is none. */
        const judged = Effect.gen(function* () {
          const code = yield* child.exitCode.pipe(
            Effect.mapError(() =>
              refuse("its program was killed: it did what it may not, or was told to end")
            )
          )
          yield* Deferred.await(silent)
          const words = yield* Ref.get(said)
          if (code !== 0) return yield* refuse(lastWord(words))
          const trailer = words
            .split("\n")
            .map((line) => trailerOf(line))
            .find((option) => option._tag === "Some")
          if (trailer === undefined) return yield* refuse("its program ended without saying what it left out")
          yield* Deferred.succeed(leftOut, trailer.value)
        })
        const contents = child.stdout.pipe(
          Stream.mapError((error) => refuse(`what its program wrote could not be read: ${error.message}`)),
          Stream.timeoutOrElse({
            duration: SILENCE,
            orElse: () => Stream.fail(refuse(`nothing more of it was read for ${SILENCE}`))
          }),
          Stream.concat(Stream.fromEffectDrain(judged))
        )
        return {
          usedBytes: yield* Deferred.await(begun),
          contents,
          leftOut: Deferred.await(leftOut)
        } satisfies Bundle
      })
    }
  })
)
