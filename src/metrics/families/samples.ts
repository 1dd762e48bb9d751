/** Shapes that samples of several families have. */
import { HealthCheck } from "../../document/schema.ts"
import { type Family, joinLabels, labelText, type Put } from "../exposition.ts"
import type { Counter, LabelText } from "../instruments.ts"
import type { AppView, MetricsView } from "../view.ts"

/** What the label `app` holds. */
export const appLabel = "its appId"

/** Every kind of health check. */
export const healthKinds = HealthCheck.members.map(({ fields }) => fields.kind.schema.literal)

/** From ms. */
export const seconds = (ms: number): number => ms / 1000

/** A time of the report in seconds since 1970; 0 for never. */
export const timestamp = (text: string | undefined): number =>
  text === undefined ? 0 : seconds(Date.parse(text))

const stateLabels = new Map<string, LabelText>()

/** `state="…"`; one text for each state, since a page may hold tens of thousands of them. */
const stateLabel = (state: string): LabelText => {
  const known = stateLabels.get(state)
  if (known !== undefined) return known
  const made = labelText({ state })
  stateLabels.set(state, made)
  return made
}

/** 1 for the state that is, 0 for each other. */
export const oneHot = (put: Put, of: LabelText, states: ReadonlyArray<string>, state: string): void => {
  for (const each of states) put(joinLabels(of, stateLabel(each)), each === state ? 1 : 0)
}

export const putTotals = (put: Put, counter: Counter, of: LabelText = ""): void => {
  for (const [labels, total] of counter.totals) put(joinLabels(of, labels), total)
}

/** Samples of a family of which each app has its own. */
export const perApp =
  (collect: (view: AppView, put: Put) => void): Family<MetricsView>["collect"] =>
  ({ apps }, put) => {
    for (const view of apps) collect(view, put)
  }

/** One sample an app: none where the value is not known. */
export const valueOf = (of: (view: AppView) => number | undefined) =>
  perApp((view, put) => {
    const value = of(view)
    if (value !== undefined) put(view.label, value)
  })
