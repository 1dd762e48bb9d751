/** Which accelerator this machine has, and what TCG must know of the machine's clock. */
import { execFile } from "node:child_process"
import { accessSync, constants, readFileSync } from "node:fs"
import { crc32 } from "node:zlib"
import { Effect, FileSystem } from "effect"
import { HypervisorError } from "../../../src/services/Hypervisor.ts"
import type { Accelerator } from "./command-line.ts"
import { hostBootId } from "./process.ts"

/** Why KVM cannot be used here; none when it can. */
export const kvmProblem = (machine: {
  readonly cpuinfo: string
  readonly device: boolean
}): string | undefined => {
  if (!machine.device) return "/dev/kvm cannot be opened for reading and writing"
  // A kernel may offer /dev/kvm to guests that are made for it alone (PVM): ordinary guests hang under it.
  return /^flags\s*:.*\b(?:vmx|svm)\b/mu.test(machine.cpuinfo)
    ? undefined
    : "the processor has neither VMX nor SVM"
}

const deviceOpens = (): boolean => {
  try {
    accessSync("/dev/kvm", constants.R_OK | constants.W_OK)
    return true
  } catch {
    return false
  }
}

/** Runs a program to its end; what it printed, or why it failed. */
export const run = (program: string, args: ReadonlyArray<string>): Effect.Effect<string, string> =>
  Effect.callback((resume) => {
    const child = execFile(program, args, { timeout: 30_000 }, (error, stdout, stderr) => {
      const said = stderr.trim().split("\n").at(-1)
      resume(
        error === null
          ? Effect.succeed(stdout)
          : Effect.fail(said === "" || said === undefined ? error.message : said)
      )
    })
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** A frequency that a machine of ours can have, in kHz; none for what is no number, or no such number. */
export const parseKhz = (text: string): number | undefined => {
  const khz = /^\d{1,8}\s*$/u.test(text) ? Number(text) : Number.NaN
  return khz >= 100_000 && khz <= 20_000_000 ? khz : undefined
}

/** The frequency of the host's TSC in kHz, measured by `tscProbe` once per boot of the host. */
export const tscKhz = Effect.fnUntraced(function* (runtimeDir: string, tscProbe: string) {
  const fs = yield* FileSystem.FileSystem
  const failed = (reason: string) =>
    new HypervisorError({ operation: "measure the frequency of this machine's TSC", reason })
  const boot = hostBootId()
  const cache = `${runtimeDir}/tsc-khz`
  const known = yield* fs.readFileString(cache).pipe(
    Effect.map((text) => (text.startsWith(`${boot} `) ? parseKhz(text.slice(boot.length + 1)) : undefined)),
    Effect.catchIf(
      (error) => error.reason._tag === "NotFound",
      () => Effect.succeed(undefined)
    ),
    Effect.mapError((error) => failed(error.message))
  )
  if (known !== undefined) return known

  const printed = yield* run(tscProbe, []).pipe(Effect.mapError((reason) => failed(`${tscProbe}: ${reason}`)))
  const khz = parseKhz(printed)
  if (khz === undefined) {
    return yield* failed(
      `${tscProbe} printed ${JSON.stringify(printed.slice(0, 80))}, which is no frequency in kHz`
    )
  }
  const fresh = `${cache}.new`
  yield* fs.writeFileString(fresh, `${boot} ${khz}\n`).pipe(
    Effect.andThen(fs.rename(fresh, cache)),
    Effect.mapError((error) => failed(error.message))
  )
  return khz
})

/**
 * What a guest on this accelerator sees of the machine under it, and would miss on another one: with KVM the processor itself,
 * with TCG the frequency of the clock that it was told, in MHz.
 */
export const guestView = (accelerator: Accelerator, cpuinfo: string): string => {
  if (accelerator.kind === "tcg") return `TSC of ${Math.round(accelerator.tscKhz / 1000)} MHz`
  const field = (name: string) => cpuinfo.match(new RegExp(`^${name}\\s*: (.*)$`, "mu"))?.[1] ?? "unknown"
  const model = ["vendor_id", "cpu family", "model", "stepping"].map(field).join(" ")
  return `${model}, features ${crc32(field("flags")).toString(16)}`
}

/** KVM where it can be used, else TCG with the frequency that its guests must be told. */
export const chooseAccelerator = (
  runtimeDir: string,
  tscProbe: string
): Effect.Effect<Accelerator, HypervisorError, FileSystem.FileSystem> =>
  Effect.gen(function* () {
    const problem = kvmProblem({ cpuinfo: readFileSync("/proc/cpuinfo", "utf8"), device: deviceOpens() })
    if (problem === undefined) return { kind: "kvm" }
    yield* Effect.logInfo(`microVMs run without KVM: ${problem}`)
    return { kind: "tcg", tscKhz: yield* tscKhz(runtimeDir, tscProbe) }
  })
