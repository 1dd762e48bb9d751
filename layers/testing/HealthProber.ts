/** HTTP probes of the guests of a `FakeHost`. */
import { Effect, Layer } from "effect"
import { HealthProber, type ProbeResult } from "../../src/services/HealthProber.ts"
import type { FakeHost } from "./FakeHost.ts"

/**
 * A prober over the given world. A probe that a behaviour stalls or delays beyond its bound ends as timed out; one
 * that is told to fail ends as failed with that reason.
 */
export const layerHealthProber = (host: FakeHost) =>
  Layer.sync(HealthProber, () =>
    HealthProber.of({
      http: (probe) =>
        Effect.suspend(() => {
          const machine = host.internal.byReach(probe.host)
          const subject = machine?.spec.appId ?? probe.host
          // The kernel of a frozen guest accepts, and nobody answers.
          const answer = Effect.suspend(() =>
            machine?.frozen === undefined ? Effect.sync(answerNow) : Effect.never
          )
          const answerNow = (): ProbeResult => {
            if (machine === undefined || !host.machines.includes(machine)) return { kind: "refused" }
            const scripted = host.internal.httpAnswers.get(machine.spec.appId)
            if (scripted !== undefined) return scripted
            // QEMU accepts for the guest, and hangs up when the guest does not.
            return machine.listening
              ? { kind: "answered", status: 200 }
              : { kind: "failed", reason: "the connection was closed before an answer" }
          }
          return host.internal
            .take({ step: "http", subject, ports: [probe.port] }, (reason) => reason)
            .pipe(
              Effect.andThen(answer),
              Effect.catch((reason) => Effect.succeed<ProbeResult>({ kind: "failed", reason })),
              Effect.timeoutOrElse({
                duration: probe.timeoutMs,
                orElse: () => Effect.succeed<ProbeResult>({ kind: "timed-out", ms: probe.timeoutMs })
              })
            )
        })
    })
  )
