/**
 * `NIBRUNNER_SEED` fixes what property tests try, so that a run can be made again to the letter; without it every
 * run tries something else.
 */
import fc from "fast-check"

const seed = Number(process.env.NIBRUNNER_SEED)
if (Number.isInteger(seed) && seed !== 0) fc.configureGlobal({ seed })
