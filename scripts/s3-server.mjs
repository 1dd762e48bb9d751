// @ts-check
/**
 * The S3 server that tests and benches run against: Versity's gateway, made by Go out of the sources of its module.
 * On a machine whose Go is too old, that Go brings a newer one, as a module too.
 *
 *     node scripts/s3-server.mjs
 *
 * Does nothing when it is there. Plain JavaScript, Node 18.
 */
import { spawnSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { s3Server, tools, VERSION } from "./s3-server-path.mjs"

const MODULE = "github.com/versity/versitygw"
/** Of the module's contents, as Go computes it. */
const SUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
/** What the module asks for. */
const GO_MINOR = 25
const NEWER_GO = "v0.0.1-go1.26.8.linux-amd64"

/** @param {string} text @returns {never} */
const stop = (text) => {
  process.stderr.write(`setup: the S3 server of the tests cannot be made: ${text}\n`)
  process.exit(1)
}

/** @param {string} go @param {ReadonlyArray<string>} args @param {NodeJS.ProcessEnv} [env] */
const run = (go, args, env = {}) => {
  const { error, status, stdout } = spawnSync(go, args, {
    cwd: tools,
    encoding: "utf8",
    stdio: ["ignore", "pipe", 2],
    env: { ...process.env, ...env }
  })
  if (error) stop(`${go} could not be started: ${error.message}`)
  if (status !== 0) stop(`"go ${args.join(" ")}" failed with exit code ${status}`)
  return stdout
}

/** @param {string} go */
const isNewEnough = (go) => {
  const { stdout } = spawnSync(go, ["env", "GOVERSION"], { encoding: "utf8" })
  const minor = /^go1\.(\d+)/u.exec(stdout ?? "")?.[1]
  return Number(minor) >= GO_MINOR
}

/** @param {string} folder */
const makeExecutable = (folder) => {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) makeExecutable(path)
    else chmodSync(path, 0o755)
  }
}

/** Go as a module comes without the modes of its programs. @param {string} old */
const newerGo = (old) => {
  const env = { GOMODCACHE: join(tools, "go-mod"), GOFLAGS: "-modcacherw" }
  const found = JSON.parse(run(old, ["mod", "download", "-json", `golang.org/toolchain@${NEWER_GO}`], env))
  for (const folder of ["bin", "pkg/tool"]) makeExecutable(join(found.Dir, folder))
  return join(found.Dir, "bin/go")
}

if (!existsSync(s3Server)) {
  process.stderr.write(`setup: making ${MODULE} ${VERSION}, the S3 server of the tests (some minutes)\n`)
  mkdirSync(tools, { recursive: true })
  const found = "go"
  if (spawnSync(found, ["version"]).status !== 0) stop("there is no Go (Debian package golang-go)")
  const go = isNewEnough(found) ? found : newerGo(found)
  const half = join(tools, "half-made")
  rmSync(half, { recursive: true, force: true })
  run(go, ["install", "-trimpath", "-ldflags=-s -w", `${MODULE}/cmd/versitygw@${VERSION}`], {
    GOBIN: half,
    GOFLAGS: "",
    CGO_ENABLED: "0",
    GOTOOLCHAIN: "local",
    ...(go === found ? {} : { GOROOT: undefined, GOMODCACHE: join(tools, "go-mod"), GOFLAGS: "-modcacherw" })
  })
  const made = join(half, "versitygw")
  if (!run(go, ["version", "-m", made]).includes(SUM)) {
    stop(`${MODULE} ${VERSION} is not what it was when it was chosen (${SUM})`)
  }
  renameSync(made, s3Server)
  rmSync(half, { recursive: true })
}
