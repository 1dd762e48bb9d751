/** Sizes and times as a person reads them. */

const units = ["B", "KiB", "MiB", "GiB", "TiB"] as const

/** `0 B`, `64 MiB`, `1.5 GiB`: one decimal below 10 where it says more. */
export const bytes = (count: number): string => {
  let value = count
  let unit = 0
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  const rounded = value < 10 ? Math.round(value * 10) / 10 : Math.round(value)
  return `${rounded} ${units[unit]}`
}

const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** `4s`, `3m 4s`, `2h 3m`, `5d 2h`: the two largest units. What lies ahead is `0s`. */
export const duration = (ms: number): string => {
  const of = (unit: number) => Math.floor(Math.max(0, ms) / unit)
  if (ms < MINUTE) return `${of(SECOND)}s`
  if (ms < HOUR) return `${of(MINUTE)}m ${of(SECOND) % 60}s`
  if (ms < DAY) return `${of(HOUR)}h ${of(MINUTE) % 60}m`
  return `${of(DAY)}d ${of(HOUR) % 24}h`
}

/** `1 app`, `2 apps`. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${count} ${count === 1 ? one : many}`
