/**
 * A stand-in for ZeroFS's program: its command line, its configuration file, its output, and an NBD server that is not
 * ours (nbdkit). Its store is a directory:
 *
 *     current/.nbd/           the volumes
 *     checkpoints/NAME/.nbd/  copies of them
 *     checkpoints.json        names, ids and times of the checkpoints
 *     writer                  the pid of the server that writes
 *     two-writers             made when a second one was started
 *     no-credentials          made by a test: reads, writes and flushes fail
 */
import { execFileSync, spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import { createConnection, createServer } from "node:net"
import { parseArgs } from "node:util"
import { parse } from "smol-toml"
import { serveFiles } from "./ninep-server.ts"

interface Section {
  readonly [key: string]: unknown
}

interface Info {
  readonly name: string
  readonly id: string
  /** As it is printed. */
  readonly at: string
}

const KEYS: Readonly<Record<string, ReadonlyArray<string>>> = {
  "": ["cache", "storage", "servers", "filesystem", "lsm", "aws"],
  cache: ["dir", "disk_size_gb", "memory_size_gb"],
  storage: ["url", "encryption_password"],
  servers: ["nfs", "ninep", "nbd", "rpc"],
  "servers.ninep": ["addresses", "unix_socket"],
  "servers.nbd": ["addresses", "unix_socket"],
  "servers.rpc": ["addresses", "unix_socket"]
}

const fail = (message: string, code = 1): never => {
  process.stderr.write(`Error: ${message}\n`)
  process.exit(code)
}

const variable = (name: string): string => {
  const value = process.env[name]
  if (value === undefined)
    fail(`Failed to expand environment variable: ${name}: environment variable not found`)
  return value ?? ""
}

const filled = (text: string): string =>
  text.replace(/\$\$|\$\{\w+\}/gu, (found) => (found === "$$" ? "$" : variable(found.slice(2, -1))))

const expand = (value: unknown): unknown => (typeof value === "string" ? filled(value) : value)

const section = (parent: Section, name: string, path: string): Section | undefined => {
  const found = parent[name]
  if (found === undefined) return undefined
  const known = KEYS[path] ?? []
  const unknown = Object.keys(found as Section).find((key) => path !== "aws" && !known.includes(key))
  if (unknown !== undefined) fail(`Failed to parse config file: unknown field \`${unknown}\``)
  return Object.fromEntries(Object.entries(found as Section).map(([key, value]) => [key, expand(value)]))
}

const settings = (file: string) => {
  let document: Section
  try {
    document = parse(fs.readFileSync(file, "utf8")) as Section
  } catch (error) {
    return fail(`Failed to read config file: ${file}\n\nCaused by:\n    ${String(error)}`)
  }
  const whole = section({ whole: document }, "whole", "") ?? {}
  const storage = section(whole, "storage", "storage") ?? fail("missing field `storage`")
  const cache = section(whole, "cache", "cache") ?? fail("missing field `cache`")
  section(whole, "aws", "aws")
  const servers = section(whole, "servers", "servers") ?? fail("missing field `servers`")
  if (typeof cache.disk_size_gb !== "number") fail("missing field `disk_size_gb`")
  if (String(storage.encryption_password).length < 8)
    fail("Password validation failed: Password must be at least 8 characters long")
  const url = String(storage.url)
  if (!url.startsWith("file:///")) fail(`this stand-in has no store ${url}`)
  const socketOf = (name: string) =>
    section(servers, name, `servers.${name}`)?.unix_socket as string | undefined
  return {
    store: url.slice("file://".length),
    nbd: socketOf("nbd"),
    ninep: socketOf("ninep"),
    rpc: socketOf("rpc")
  }
}

type Settings = ReturnType<typeof settings>

const readInfos = (store: string): ReadonlyArray<Info> =>
  fs.existsSync(`${store}/checkpoints.json`)
    ? (JSON.parse(fs.readFileSync(`${store}/checkpoints.json`, "utf8")) as ReadonlyArray<Info>)
    : []

const writeInfos = (store: string, infos: ReadonlyArray<Info>) => {
  fs.writeFileSync(`${store}/checkpoints.json.new`, JSON.stringify(infos))
  fs.renameSync(`${store}/checkpoints.json.new`, `${store}/checkpoints.json`)
}

const isRefused = (store: string) => fs.existsSync(`${store}/no-credentials`)

/** What a server does for a command; a string that is thrown is the error. */
const obey = (store: string, command: string, name: string): unknown => {
  if (isRefused(store) && command !== "info")
    throw `Failed to ${command}: Generic S3 error: Client error with status 403 Forbidden: ExpiredToken`
  const infos = readInfos(store)
  const found = infos.find((info) => info.name === name)
  const copy = `${store}/checkpoints/${name}`
  switch (command) {
    case "flush":
      execFileSync("sync", ["-f", store])
      return null
    case "list":
      return infos
    case "info":
      return found ?? null
    case "create": {
      if (found !== undefined)
        throw `Failed to create checkpoint: A checkpoint with name '${name}' already exists`
      fs.rmSync(copy, { recursive: true, force: true })
      fs.mkdirSync(copy, { recursive: true })
      execFileSync("cp", ["-a", "--sparse=always", "--reflink=auto", `${store}/current/.nbd`, copy])
      const made = { name, id: randomUUID(), at: new Date().toISOString().slice(0, 19).replace("T", " ") }
      writeInfos(store, [...infos, made])
      return made
    }
    default: {
      if (found === undefined) throw `Failed to delete checkpoint: Checkpoint '${name}' not found`
      writeInfos(
        store,
        infos.filter((info) => info !== found)
      )
      fs.rmSync(copy, { recursive: true, force: true })
      return null
    }
  }
}

const serveCommands = (socketPath: string, store: string) => {
  fs.rmSync(socketPath, { force: true })
  createServer((socket) => {
    socket.on("error", () => undefined)
    socket.once("data", (line) => {
      const [command = "", name = ""] = JSON.parse(line.toString()) as ReadonlyArray<string>
      let answer: unknown
      try {
        answer = { done: obey(store, command, name) }
      } catch (error) {
        answer = { error: typeof error === "string" ? error : String(error) }
      }
      socket.end(JSON.stringify(answer))
    })
  }).listen(socketPath)
}

const isAlive = (pid: number) => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

const becomeWriter = (store: string) => {
  fs.mkdirSync(`${store}/current/.nbd`, { recursive: true })
  const pid = fs.existsSync(`${store}/writer`) ? Number(fs.readFileSync(`${store}/writer`, "utf8")) : 0
  if (pid > 0 && isAlive(pid)) {
    fs.writeFileSync(`${store}/two-writers`, `${pid} ${process.pid}\n`)
    fail("detected newer DB client")
  }
  fs.writeFileSync(`${store}/writer`, String(process.pid))
}

const run = ({ store, nbd, ninep, rpc }: Settings, checkpoint: string | undefined) => {
  let directory = `${store}/current/.nbd`
  if (checkpoint === undefined) becomeWriter(store)
  else {
    if (!readInfos(store).some(({ name }) => name === checkpoint))
      fail(`Checkpoint '${checkpoint}' not found`)
    directory = `${store}/checkpoints/${checkpoint}/.nbd`
  }
  if (rpc !== undefined && checkpoint === undefined) serveCommands(rpc, store)
  if (ninep !== undefined) serveFiles(ninep, `${directory}/..`, () => isRefused(store))
  if (nbd === undefined) return
  fs.rmSync(nbd, { force: true })
  const server = spawn(
    "nbdkit",
    [
      ...[
        "--foreground",
        "--exit-with-parent",
        "--unix",
        nbd,
        ...(checkpoint === undefined ? [] : ["--readonly"])
      ],
      ...["--filter=error", "file", `dir=${directory}`],
      ...["error=EIO", "error-rate=100%", `error-file=${store}/no-credentials`]
    ],
    { stdio: ["ignore", "inherit", "inherit"] }
  )
  server.on("exit", (code) => fail(`the NBD server ended with code ${code}`))
  process.on("SIGTERM", () => {
    server.removeAllListeners("exit")
    server.kill("SIGTERM")
    server.on("exit", () => {
      if (checkpoint === undefined) fs.rmSync(`${store}/writer`, { force: true })
      process.exit(0)
    })
  })
}

const call = (rpc: string | undefined, words: ReadonlyArray<string>, show: (done: unknown) => void) => {
  if (rpc === undefined) return fail("RPC server not configured in config file")
  const socket = createConnection(rpc)
  let text = ""
  socket.on("error", () =>
    fail(
      "Failed to connect to RPC server. Is the server running?\n\nCaused by:\n    Failed to connect to RPC server"
    )
  )
  socket.on("connect", () => socket.write(JSON.stringify(words)))
  socket.on("data", (chunk) => {
    text += chunk.toString()
  })
  socket.on("end", () => {
    const answer = JSON.parse(text) as { done?: unknown; error?: string }
    if (answer.error !== undefined) fail(answer.error)
    show(answer.done)
  })
}

const table = (infos: ReadonlyArray<Info>): string => {
  if (infos.length === 0) return "No checkpoints found."
  const rows = [["Name", "ID", "Created At"], ...infos.map(({ name, id, at }) => [name, id, at])]
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  const rule = (left: string, fill: string, cross: string, right: string) =>
    left + widths.map((width) => fill.repeat(width + 2)).join(cross) + right
  const line = (row: ReadonlyArray<string>) =>
    `│ ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" ┆ ")} │`
  const [header = [], ...body] = rows
  return [
    rule("┌", "─", "┬", "┐"),
    line(header),
    rule("╞", "═", "╪", "╡"),
    body.map(line).join(`\n${rule("├", "╌", "┼", "┤")}\n`),
    rule("└", "─", "┴", "┘")
  ].join("\n")
}

const described = ({ name, id, at }: Info) => `  Name: ${name}\n  ID: ${id}\n  Created at: ${at}`

const main = () => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      config: { type: "string", short: "c" },
      checkpoint: { type: "string" },
      version: { type: "boolean", short: "V" }
    }
  })
  const [command, ...rest] = positionals
  if (values.version === true) return console.log("zerofs 0.0.0-stand-in")
  if (values.config === undefined)
    return fail("the following required arguments were not provided: --config", 2)
  const config = settings(values.config)
  if (command === "run") return run(config, values.checkpoint)
  if (command === "flush")
    return call(config.rpc, ["flush"], () => console.log("✓ Flush completed successfully!"))
  const [subcommand = "", name = ""] = rest
  if (command !== "checkpoint") return fail(`unrecognized subcommand '${command}'`, 2)
  switch (subcommand) {
    case "create":
      return call(config.rpc, ["create", name], (made) =>
        console.log(`✓ Checkpoint created successfully!\n${described(made as Info)}`)
      )
    case "list":
      return call(config.rpc, ["list"], (infos) => console.log(table(infos as ReadonlyArray<Info>)))
    case "delete":
      return call(config.rpc, ["delete", name], () =>
        console.log(`✓ Checkpoint '${name}' deleted successfully!`)
      )
    case "info":
      return call(config.rpc, ["info", name], (info) =>
        console.log(
          info === null
            ? `Checkpoint '${name}' not found.`
            : `Checkpoint Information:\n${described(info as Info)}`
        )
      )
    default:
      return fail(`unrecognized subcommand '${subcommand}'`, 2)
  }
}

main()
