/**
 * The text that Prometheus reads (its text format, version 0.0.4): families of samples, each under its HELP and
 * TYPE, which are there even while a family has no sample. Pure.
 */
import { type Distribution, Histogram, type LabelText } from "./instruments.ts"

export const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

export type FamilyType = "counter" | "gauge" | "histogram" | "summary"

/** What a label holds: its values where the host chooses them, else a word for what it names. */
export type LabelValues = string | ReadonlyArray<string>

/** A declared series: one name, and how its samples are taken from `View`. */
export interface Family<View> {
  readonly name: string
  readonly type: FamilyType
  /** A sentence for whoever meets the name on a dashboard. */
  readonly help: string
  readonly labels: Readonly<Record<string, LabelValues>>
  /** Upper ends of a histogram's buckets. */
  readonly bounds?: ReadonlyArray<number>
  readonly collect: (view: View, put: Put) => void
}

/** Takes one sample. `suffix` is what a summary or histogram adds to the name. */
export type Put = (labels: LabelText, value: number, suffix?: "_bucket" | "_sum" | "_count") => void

export const escapeLabelValue = (value: string): string =>
  value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")

/** `app="web",state="running"`: what stands between the braces. */
export const labelText = (labels: Readonly<Record<string, string>>): LabelText =>
  Object.entries(labels)
    .map(([name, value]) => `${name}="${escapeLabelValue(value)}"`)
    .join(",")

/** Both label texts, one after the other; either may be empty. */
export const joinLabels = (first: LabelText, second: LabelText): LabelText =>
  first === "" ? second : second === "" ? first : `${first},${second}`

const number = (value: number): string => {
  if (value === Number.POSITIVE_INFINITY) return "+Inf"
  return value === Number.NEGATIVE_INFINITY ? "-Inf" : String(value)
}

const escapeHelp = (help: string): string => help.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")

/**
 * One family as text, its samples taken now: a piece for each view, of which each holds other samples. The pieces
 * end with a line break.
 */
export function* renderFamily<View>(family: Family<View>, views: Iterable<View>): Generator<string> {
  const { name } = family
  let text = `# HELP ${name} ${escapeHelp(family.help)}\n# TYPE ${name} ${family.type}\n`
  const put: Put = (labels, value, suffix = undefined) => {
    const full = suffix === undefined ? name : name + suffix
    text += labels === "" ? `${full} ${number(value)}\n` : `${full}{${labels}} ${number(value)}\n`
  }
  for (const view of views) {
    family.collect(view, put)
    yield text
    text = ""
  }
}

const putDistribution = (
  put: Put,
  labels: LabelText,
  bounds: ReadonlyArray<number>,
  { counts, sum, count }: Distribution
): void => {
  let below = 0
  bounds.forEach((bound, index) => {
    below += counts[index] ?? 0
    put(joinLabels(labels, `le="${bound}"`), below, "_bucket")
  })
  put(joinLabels(labels, 'le="+Inf"'), count, "_bucket")
  put(labels, sum, "_sum")
  put(labels, count, "_count")
}

// ------------------------------------------------------------------------------- how families are declared

type Labels = Family<unknown>["labels"]

export const gauge = <View>(
  name: string,
  help: string,
  labels: Labels,
  collect: Family<View>["collect"]
): Family<View> => ({ name, type: "gauge", help, labels, collect })

export const counter = <View>(
  name: string,
  help: string,
  labels: Labels,
  collect: Family<View>["collect"]
): Family<View> => ({ name, type: "counter", help, labels, collect })

/** Sum and count alone. */
export const summary = <View>(
  name: string,
  help: string,
  labels: Labels,
  collect: Family<View>["collect"]
): Family<View> => ({ name, type: "summary", help, labels, collect })

export const histogram = <View>(
  name: string,
  help: string,
  labels: Labels,
  bounds: ReadonlyArray<number>,
  of: (view: View) => Histogram | Distribution
): Family<View> => ({
  name,
  type: "histogram",
  help,
  labels,
  bounds,
  collect: (view, put) => {
    const observed = of(view)
    if (!(observed instanceof Histogram)) return putDistribution(put, "", bounds, observed)
    for (const [text, distribution] of observed.distributions)
      putDistribution(put, text, bounds, distribution)
  }
})
