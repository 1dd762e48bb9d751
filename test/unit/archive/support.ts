/** Archives made by the tools that people have, and volumes that start with them. */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, type Scope } from "effect"
import { layerLocalFileVolumes } from "../../../layers/volume/local-file.ts"
import { VolumeId } from "../../../src/document/schema.ts"
import { VolumeBackend } from "../../../src/services/VolumeBackend.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const MIB = 2 ** 20
export const isRoot = process.getuid?.() === 0

const environment = {
  ...process.env,
  LC_ALL: "C.UTF-8",
  TZ: "UTC",
  PATH: `${process.env.PATH}:/usr/sbin:/sbin`
}

/** Runs a shell script in the directory. */
export const shell = (directory: string, script: string): string =>
  execFileSync("bash", ["-euc", script], {
    cwd: directory,
    encoding: "latin1",
    env: environment,
    stdio: ["ignore", "pipe", "pipe"]
  })

/** Runs a program of Python's in the directory. */
export const python = (directory: string, program: string): string =>
  execFileSync("/usr/bin/python3", ["-c", program], { cwd: directory, encoding: "utf8", env: environment })

export interface Workbench {
  /** Where archives are made. */
  readonly folder: string
  readonly stateDir: string
  readonly layer: Layer.Layer<VolumeBackend, unknown>
  /** The path of the archive that the script makes there, named `archive`. */
  readonly made: (script: string) => string
  readonly madeByPython: (program: string) => string
}

export const workbench: Effect.Effect<Workbench, never, Scope.Scope> = Effect.gen(function* () {
  const folder = yield* temporaryDirectory
  const stateDir = yield* temporaryDirectory
  const archive = path.join(folder, "archive")
  return {
    folder,
    stateDir,
    layer: layerLocalFileVolumes({ stateDir }).pipe(Layer.provide(NodeServices.layer)),
    made: (script) => {
      fs.rmSync(archive, { force: true })
      shell(folder, script)
      return archive
    },
    madeByPython: (program) => {
      fs.rmSync(archive, { force: true })
      python(folder, program)
      return archive
    }
  }
})

export interface SeedOptions {
  readonly destinationPath?: string
  readonly sizeBytes?: number
}

export const provision = (bench: Workbench, archive: string, options: SeedOptions = {}) =>
  VolumeBackend.use((volumes) =>
    volumes.provision({
      volumeId: VolumeId.make("vol-1"),
      sizeBytes: options.sizeBytes ?? 16 * MIB,
      contents: { archive, destinationPath: options.destinationPath ?? "/app/data", objectKey: "seeds/app-1" }
    })
  ).pipe(Effect.provide(bench.layer))

/** A volume that was made, read without mounting it. */
export const readVolume = (bench: Workbench) => {
  const file = path.join(bench.stateDir, "volumes", "vol-1.img")
  const debugfs = (command: string, encoding: BufferEncoding = "utf8") =>
    execFileSync("debugfs", ["-R", command, file], {
      encoding,
      env: environment,
      stdio: ["ignore", "pipe", "ignore"],
      maxBuffer: 64 * MIB
    })
  const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`
  return {
    file,
    check: () => execFileSync("e2fsck", ["-fn", file], { env: environment, stdio: "ignore" }),
    text: (name: string) => debugfs(`cat ${quoted(name)}`),
    /** Writes the file of this name into one of the host's. */
    dump: (name: string, to: string) => debugfs(`dump ${quoted(name)} ${to}`),
    stat: (name: string) => debugfs(`stat ${quoted(name)}`),
    attributes: (name: string) => debugfs(`ea_list ${quoted(name)}`),
    /** `MODE UID GID` in octal and decimal. */
    owner: (name: string) => {
      const said = debugfs(`stat ${quoted(name)}`)
      const field = (label: string) => new RegExp(`${label}:\\s+(\\d+)`, "u").exec(said)?.[1] ?? "?"
      return `${field("Mode")} ${field("User")} ${field("Group")}`
    },
    /** Names in a directory, sorted, as bytes. */
    names: (name: string) =>
      debugfs(`ls -p ${quoted(name)}`, "latin1")
        .split("\n")
        .flatMap((line) => line.split("/")[5] ?? [])
        .filter((entry) => entry !== "." && entry !== "..")
        .sort()
  }
}

/** All that a volume that was not made may leave: nothing. */
export const leftovers = (bench: Workbench): ReadonlyArray<string> =>
  ["volumes", "initial-contents"].flatMap((directory) => fs.readdirSync(path.join(bench.stateDir, directory)))

/** A tar made by hand: each part is a header with its content. */
export const handmade = (...parts: ReadonlyArray<Buffer>): Buffer =>
  Buffer.concat([...parts, Buffer.alloc(1024)])

export interface HandmadeHeader {
  readonly name: string
  readonly type?: string
  readonly link?: string
  readonly size?: number
  readonly mode?: number
  readonly device?: readonly [major: number, minor: number]
}

export const entry = (header: HandmadeHeader, content: Buffer | string = ""): Buffer => {
  const body = Buffer.from(content)
  const block = Buffer.alloc(512)
  const octal = (value: number, start: number, length: number) =>
    block.write(value.toString(8).padStart(length - 1, "0"), start, "latin1")
  block.write(header.name, 0, 100, "latin1")
  octal(header.mode ?? 0o644, 100, 8)
  octal(0, 108, 8)
  octal(0, 116, 8)
  octal(header.size ?? body.length, 124, 12)
  octal(1_700_000_000, 136, 12)
  block.write(header.type ?? "0", 156, "latin1")
  block.write(header.link ?? "", 157, 100, "latin1")
  block.write("ustar\x0000", 257, "latin1")
  octal(header.device?.[0] ?? 0, 329, 8)
  octal(header.device?.[1] ?? 0, 337, 8)
  block.fill(" ", 148, 156)
  octal(
    block.reduce((sum, byte) => sum + byte, 0),
    148,
    8
  )
  return Buffer.concat([block, body, Buffer.alloc((512 - (body.length % 512)) % 512)])
}
