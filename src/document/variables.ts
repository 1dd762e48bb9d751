/** What an environment variable may be called. */
import { quote } from "./quote.ts"

export const VARIABLE_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/u

/** Why a name is refused, or nothing. */
export const variableNameProblem = (name: string): string | undefined =>
  VARIABLE_NAME.test(name)
    ? undefined
    : `${quote(name)} is not a variable's name: a letter or '_', then letters, digits and '_'`
