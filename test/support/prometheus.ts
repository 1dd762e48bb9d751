/**
 * A reader of Prometheus' text format that knows nothing of the host, and is strict where Prometheus is lenient: every
 * family is told of once, by HELP and then TYPE, before its samples, which stand together.
 */

export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export interface ReadFamily {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly samples: ReadonlyArray<Sample>
}

const suffixes: Readonly<Record<string, ReadonlyArray<string>>> = {
  counter: [""],
  gauge: [""],
  histogram: ["_bucket", "_sum", "_count"],
  summary: ["_sum", "_count"]
}

const readValue = (text: string): number => {
  if (text === "+Inf") return Number.POSITIVE_INFINITY
  if (text === "-Inf") return Number.NEGATIVE_INFINITY
  const value = Number(text)
  if (text === "" || Number.isNaN(value)) throw new Error(`no number: ${JSON.stringify(text)}`)
  return value
}

const readLabels = (text: string): Readonly<Record<string, string>> => {
  const labels: Record<string, string> = {}
  let rest = text
  while (rest !== "") {
    const found = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/u.exec(rest)
    if (found === null) throw new Error(`no label: ${rest}`)
    const [whole, name = "", value = ""] = found
    if (name in labels) throw new Error(`label ${name} twice: ${text}`)
    labels[name] = value.replace(/\\(.)/gsu, (_, escaped: string) => (escaped === "n" ? "\n" : escaped))
    rest = rest.slice(whole.length)
  }
  return labels
}

const readSample = (line: string): Sample => {
  const found = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.+)\})? (\S+)$/su.exec(line)
  if (found === null) throw new Error(`no sample: ${line}`)
  const [, name = "", labels = "", value = ""] = found
  return { name, labels: readLabels(labels), value: readValue(value) }
}

/** Throws, naming the line, when the text is not in the format. */
export const readMetrics = (text: string): ReadonlyMap<string, ReadFamily> => {
  if (!text.endsWith("\n")) throw new Error("the text does not end with a line break")
  const families = new Map<string, ReadFamily & { readonly samples: Array<Sample> }>()
  const seen = new Set<string>()
  let help: readonly [name: string, text: string] | undefined
  let current: (ReadFamily & { readonly samples: Array<Sample> }) | undefined
  for (const line of text.slice(0, -1).split("\n")) {
    const told = /^# HELP (\S+) (.+)$/u.exec(line)
    const typed = /^# TYPE (\S+) (counter|gauge|histogram|summary)$/u.exec(line)
    if (told !== null) {
      help = [told[1] ?? "", told[2] ?? ""]
    } else if (typed !== null) {
      const [, name = "", type = ""] = typed
      if (help?.[0] !== name) throw new Error(`${name} has no HELP before its TYPE`)
      if (families.has(name)) throw new Error(`${name} is told of twice`)
      current = { name, help: help[1], type, samples: [] }
      families.set(name, current)
      help = undefined
    } else {
      const sample = readSample(line)
      const owner = current
      if (
        owner === undefined ||
        !suffixes[owner.type]?.some((suffix) => sample.name === owner.name + suffix)
      ) {
        throw new Error(`a sample out of its family: ${line}`)
      }
      const key = JSON.stringify([sample.name, Object.entries(sample.labels).sort()])
      if (seen.has(key)) throw new Error(`a series twice: ${line}`)
      seen.add(key)
      owner.samples.push(sample)
    }
  }
  return families
}

/** The value of the series with exactly these labels, in any order; undefined when there is none. */
export const valueOf = (
  families: ReadonlyMap<string, ReadFamily>,
  name: string,
  labels: Readonly<Record<string, string>> = {}
): number | undefined => {
  const family = families.get(name) ?? families.get(name.replace(/_(bucket|sum|count)$/u, ""))
  if (family === undefined) throw new Error(`there is no ${name}`)
  const same = (sample: Sample) =>
    sample.name === name &&
    Object.keys(sample.labels).length === Object.keys(labels).length &&
    Object.entries(labels).every(([label, value]) => sample.labels[label] === value)
  return family.samples.find(same)?.value
}
