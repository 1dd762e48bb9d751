/** What one app's fiber knows, and what it is told. Only that fiber and its current step write to it. */
import type { Deferred, Scope } from "effect"
import type { AppId, DesiredInstance, DesiredVolume, VolumeId } from "../document/schema.ts"
import type { FailureReason, WakeOutcome } from "../metrics/host-metrics.ts"
import type { Fetching } from "../services/ArtifactStore.ts"
import type { GuestEvent, GuestSession } from "../services/Guest.ts"
import type { AppRecord } from "../services/HostState.ts"
import type { Machine, MachineExit } from "../services/Hypervisor.ts"
import type { UnavailableTarget, UpTarget } from "../services/Proxy.ts"
import type { Health } from "./health.ts"
import type { SleepReason } from "./idle.ts"
import type { AppFacts, Step, VolumeFacts } from "./plan.ts"

/** What the document says of one app. */
export interface DesiredApp {
  readonly instance: DesiredInstance | undefined
  readonly volumes: ReadonlyArray<DesiredVolume>
}

/** This daemon's hold on the app's microVM. */
export interface Attachment {
  readonly machine: Machine
  /** The instance as it was when the microVM booted: a running instance keeps what it booted with. */
  readonly instance: DesiredInstance
  readonly scope: Scope.Closeable
  /** Done once PID 1 and this daemon have said hello. */
  readonly session: Deferred.Deferred<GuestSession>
  /** The same, once it is there. */
  guest: GuestSession | undefined
  /** Done once the guest has said that its program runs, or that it gives up, and when its VMM has ended. */
  readonly started: Deferred.Deferred<void>
  /** It is being put to sleep, or has not been told yet to run on: nothing else is asked of its guest. */
  frozen: boolean
}

export type AppMessage =
  | { readonly kind: "desired"; readonly desired: DesiredApp }
  | { readonly kind: "step-ended"; readonly step: Step; readonly failure: StepFailure | undefined }
  | { readonly kind: "exited"; readonly machineId: string; readonly exit: MachineExit }
  | { readonly kind: "guest"; readonly machineId: string; readonly event: GuestEvent }
  | { readonly kind: "probed"; readonly machineId: string; readonly health: Health }
  | { readonly kind: "look-again" }
  /** Something has come for the app and waits for it to be up; it is answered with where to go on. */
  | { readonly kind: "wake-wanted"; readonly answer: Waker }
  /** The app is due to sleep; who asked by hand is told what came of it: a reason, or undefined when it sleeps. */
  | {
      readonly kind: "sleep-due"
      readonly reason: SleepReason
      readonly answer: Deferred.Deferred<string | undefined> | undefined
    }

/** Who waits for an app to be up. */
export type Waker = Deferred.Deferred<UpTarget | UnavailableTarget>

/** Why a step did not do what it was to do. */
export interface StepFailure {
  readonly kind: FailureReason
  readonly reason: string
  /** Which error it was. */
  readonly tag: string | undefined
  /** How many MiB of memory the host was short of, when that was the reason. */
  readonly shortMib: number | undefined
}

/** How far a start, a wake or a sleep has come: for the report and the route. */
export type StartProgress =
  | { readonly kind: "preparing" }
  /** Of a start, a volume or a new release: what is fetched from the artifact store now. */
  | { readonly kind: "fetching"; readonly fetching: Fetching }
  | { readonly kind: "short-of-memory"; readonly missingMib: number }
  | { readonly kind: "start-capacity-in-use"; readonly limit: number }
  | { readonly kind: "booting" }
  /** Of a sleep: what comes for the app from now on waits until it sleeps, and wakes it. */
  | { readonly kind: "falling-asleep" }

export interface AppModel {
  readonly appId: AppId
  desired: DesiredApp
  record: AppRecord | undefined
  readonly volumes: Map<VolumeId, VolumeFacts>
  /** Which app of the host an existing volume belongs to. */
  readonly ownerOf: (volumeId: VolumeId) => AppId | undefined
  /** What keeps the host's volumes from being read and written now. */
  readonly volumeTrouble: () => string | undefined
  /** What keeps its own ports on the host from being listened on now. */
  readonly portTrouble: () => string | undefined
  attachment: Attachment | undefined
  health: Health
  /** What the guest itself said when it gave up. */
  guestFailure: string | undefined
  step: Step | undefined
  progress: StartProgress | undefined
  /** How often a step has begun that may bring the app up. */
  rises: number
  /** The last attempt at a slot found none; the next is due at `retryAt`. */
  slotFailure: { readonly reason: string; readonly retryAt: number } | undefined
  /** Who waits for the app to be up. */
  readonly wakers: Set<Waker>
  sleepDue:
    | { readonly reason: SleepReason; readonly answer: Deferred.Deferred<string | undefined> | undefined }
    | undefined
  /** Why the app is up although it is due to sleep. */
  sleepFailure: string | undefined
  /** The wake that has not been answered yet: when it began (ns of the monotonic clock), and how it comes up. */
  waking: { readonly beganAt: bigint; outcome: WakeOutcome } | undefined
  /** Why the app still sleeps although something came for it. */
  wakeFailure: string | undefined
  /** What is known of the layers of the release that is to replace the one that is up. */
  replacement:
    | {
        readonly deploymentId: string
        readonly failure: { readonly reason: string; readonly retryAt: number } | undefined
      }
    | undefined
  /** Why this daemon has not taken up the microVM that an earlier one left. */
  adoptionFailure: string | undefined
  /** The host's notes could not be written: what is in memory is newer than what is on disk. */
  notesFailure: string | undefined
}

/** The planner's view. */
export const factsOf = (model: AppModel, now: number, refusal: string | undefined): AppFacts => ({
  now,
  instance: model.desired.instance,
  desiredVolumes: model.desired.volumes,
  volumes: model.volumes,
  record: model.record,
  machineUp: model.attachment !== undefined,
  strayMachine: model.attachment === undefined && model.record?.machine !== undefined,
  refusal,
  slotRetryAt: model.slotFailure?.retryAt,
  wakeWanted: model.wakers.size > 0,
  sleepDue: model.sleepDue?.reason,
  replacement: model.replacement
})
