/** What a host would do for one app. Plain data: what is printed, for a person or a program, is made of it. */
import type { AppId, DeploymentId, VolumeId } from "../document/schema.ts"

export type Action =
  /** Make the volume and format it. */
  | { readonly kind: "create-volume"; readonly volumeId: VolumeId; readonly sizeBytes: number }
  /** Make the volume's device larger; the filesystem follows when the app boots next. */
  | {
      readonly kind: "grow-volume"
      readonly volumeId: VolumeId
      readonly fromBytes: number
      readonly toBytes: number
    }
  | {
      readonly kind: "delete-volume"
      readonly volumeId: VolumeId
      readonly sizeBytes: number
      /** False for one that was never made whole. */
      readonly dataLost: boolean
    }
  /** The volume cannot be as the document asks. */
  | { readonly kind: "refuse-volume"; readonly volumeId: VolumeId; readonly reason: string }
  /** Start a microVM where none is. */
  | { readonly kind: "boot"; readonly deploymentId: DeploymentId; readonly reason: string }
  /** Stop the microVM and start one of another deployment. */
  | {
      readonly kind: "replace"
      readonly fromDeploymentId: DeploymentId
      readonly toDeploymentId: DeploymentId
      /** What else differs from what it booted with, as paths below the instance. */
      readonly changes: ReadonlyArray<string>
    }
  /** Start the microVM of the same deployment again: it failed, or has ended. */
  | {
      readonly kind: "restart"
      readonly deploymentId: DeploymentId
      readonly reason: string
      /** ms since 1970: the restart policy holds it back until then. */
      readonly notBefore?: number
    }
  /** The app sleeps and is to run: it wakes as what it was. */
  | { readonly kind: "wake"; readonly deploymentId: DeploymentId; readonly reason: string }
  /** The app sleeps and does not wake as what it was: its volume stays, what it held in memory goes. */
  | { readonly kind: "discard-memory"; readonly reason: string }
  | { readonly kind: "stop"; readonly reason: string }
  /** Take up at once what needs no new microVM. */
  | { readonly kind: "update"; readonly changes: ReadonlyArray<string> }
  /** Give up what the host keeps of an app or of a volume that is gone. */
  | { readonly kind: "forget"; readonly reason: string }
  /** This host does not run the instance. */
  | { readonly kind: "refuse"; readonly reason: string }
  /** The app would be started, but something on the host is used up. */
  | { readonly kind: "wait"; readonly for: "memory" | "slot"; readonly reason: string }

export type ActionKind = Action["kind"]

export interface AppForesight {
  readonly appId: AppId
  /** In the order in which they would be done; none when the host would do nothing. */
  readonly actions: ReadonlyArray<Action>
  /** Whether its microVM runs when all this is done. */
  readonly runs: boolean
  /** What a reader of the document may expect to happen, and why it does not. */
  readonly notes: ReadonlyArray<string>
}
