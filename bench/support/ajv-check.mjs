/**
 * What `nibrunnerd check` is measured against: a script that compiles our JSON Schema with ajv, then parses a
 * document and validates it.
 *
 *     node ajv-check.mjs SCHEMA DOCUMENT
 */
import { readFileSync } from "node:fs"
import { Ajv2020 } from "ajv/dist/2020.js"

const [schemaFile = "", documentFile = ""] = process.argv.slice(2)
const validate = new Ajv2020({ strict: false }).compile(JSON.parse(readFileSync(schemaFile, "utf8")))
const valid = validate(JSON.parse(readFileSync(documentFile, "utf8")))
console.log(valid ? `${documentFile}: valid` : JSON.stringify(validate.errors))
process.exitCode = valid ? 0 : 1
