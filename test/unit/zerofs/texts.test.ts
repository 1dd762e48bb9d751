/** What is read from ZeroFS's output and written into its configuration. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { parse } from "smol-toml"
import { readCheckpoints } from "../../../layers/volume/zerofs/checkpoint-table.ts"
import { lastWord, zerofsEnvironment } from "../../../layers/volume/zerofs/command.ts"
import { decodeEntries, encodeMessage } from "../../../layers/volume/zerofs/ninep.ts"
import type { ZerofsSection } from "../../../src/config/schema.ts"
import { cacheMemoryMib, renderReaderConfig, renderZerofsConfig } from "../../../src/volume/zerofs-config.ts"

const REFERENCE = "3c45c7c9-0506-4f39-8c9e-fb45be10af48"

const LISTING = `
┌────────────┬──────────────────────────────────────┬─────────────────────┐
│ Name       ┆ ID                                   ┆ Created At          │
╞════════════╪══════════════════════════════════════╪═════════════════════╡
│ one        ┆ ${REFERENCE} ┆ 2026-11-30 19:03:01 │
├╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
│ export-two ┆ 241543c9-61bb-45ce-8f30-5388723efae2 ┆ 2026-11-30 19:03:02 │
└────────────┴──────────────────────────────────────┴─────────────────────┘
`

describe("ZeroFS's list of checkpoints", () => {
  it("is read with names, ids and times", () => {
    assert.deepStrictEqual(readCheckpoints(LISTING), [
      { name: "one", reference: REFERENCE, createdAt: Date.UTC(2026, 10, 30, 19, 3, 1) },
      {
        name: "export-two",
        reference: "241543c9-61bb-45ce-8f30-5388723efae2",
        createdAt: Date.UTC(2026, 10, 30, 19, 3, 2)
      }
    ])
  })

  it("is empty where ZeroFS says so, also behind what its allocator has to say", () => {
    const text =
      "<jemalloc>: option background_thread currently supports pthread only\nNo checkpoints found.\n"
    assert.deepStrictEqual(readCheckpoints(text), [])
  })

  it("is read in another style of lines, and with any name that somebody gave by hand", () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: "grapheme", maxLength: 30 }), { minLength: 1, maxLength: 5 }),
        fc.constantFrom("┆", "│", "|"),
        (given, divider) => {
          const names = given.map((name) => `n${name.replace(/[\s\p{Cc}\p{Z}]+/gu, "-")}n`)
          const row = (cells: ReadonlyArray<string>) => `│ ${cells.join(` ${divider} `)} │`
          const lines = names.map((name) => row([name, REFERENCE, "2026-01-02 03:04:05"]))
          const text = [row(["Name", "ID", "Created At"]), ...lines].join("\n+---+---+\n")
          const read = readCheckpoints(text)
          assert.isTrue(Array.isArray(read))
          assert.strictEqual((read as ReadonlyArray<unknown>).length, names.length)
        }
      )
    )
  })

  it("that makes no sense is no list: the line is given", () => {
    assert.deepStrictEqual(readCheckpoints("something else"), { unread: "something else" })
    assert.deepStrictEqual(readCheckpoints(LISTING.replace(REFERENCE, "not an id")), {
      unread: "│ one        ┆ not an id ┆ 2026-11-30 19:03:01 │"
    })
  })
})

describe("what ZeroFS says before it fails", () => {
  it("is its sentence with the last cause, without a stack", () => {
    const said = `\u001b[2m2026-11-30\u001b[0m INFO Starting
Error: Failed to connect to RPC server. Is the server running?

Caused by:
    0: rpc
    1: Failed to connect to RPC server

Stack backtrace:
   0: <unknown>
`
    assert.strictEqual(
      lastWord(said),
      "Failed to connect to RPC server. Is the server running?: Failed to connect to RPC server"
    )
    assert.strictEqual(
      lastWord("error: unrecognized subcommand 'flush'\n\nUsage: zerofs"),
      "unrecognized subcommand 'flush'"
    )
    assert.strictEqual(lastWord(""), "it said nothing")
  })

  it("is said in an environment that has nothing but what its configuration refers to", () => {
    const given = { PATH: "/bin", SECRET: "x", ZEROFS_ENCRYPTION_PASSWORD: "p", AWS_REGION: "r" }
    assert.deepStrictEqual(Object.keys(zerofsEnvironment(given)).toSorted(), [
      "AWS_REGION",
      "LC_ALL",
      "PATH",
      "RUST_BACKTRACE",
      "TZ",
      "ZEROFS_ENCRYPTION_PASSWORD"
    ])
  })
})

const section = (changes: Partial<ZerofsSection> = {}): ZerofsSection => ({
  binary: "/opt/nibrunner/bin/zerofs",
  config_file: "/etc/zerofs/config.toml",
  mount_path: "/mnt/zerofs",
  nbd_socket_path: "/run/zerofs/nbd.sock",
  ninep_socket_path: "/run/zerofs/9p.sock",
  rpc_socket_path: "/run/zerofs/rpc.sock",
  storage_url: "s3://bucket/host-1",
  cache_dir: "/data/zerofs",
  cache_disk_gib: 200,
  cache_memory_gib: 2,
  checkpoint_runtime_dir: "/run/zerofs-checkpoint",
  checkpoint_config_file: "/etc/zerofs/checkpoint.toml",
  checkpoint_cache_dir: "/data/zerofs-checkpoint",
  ...changes
})

describe("ZeroFS's configuration", () => {
  it("names its store, its caches and its sockets, and secrets by their variables only", () => {
    assert.deepStrictEqual(parse(renderZerofsConfig(section())), {
      cache: { dir: "/data/zerofs", disk_size_gb: 214.7483648, memory_size_gb: 2.147483648 },
      storage: { url: "s3://bucket/host-1", encryption_password: "${ZEROFS_ENCRYPTION_PASSWORD}" },
      aws: {
        access_key_id: "${AWS_ACCESS_KEY_ID}",
        secret_access_key: "${AWS_SECRET_ACCESS_KEY}",
        region: "${AWS_REGION}"
      },
      servers: {
        nbd: { unix_socket: "/run/zerofs/nbd.sock" },
        ninep: { unix_socket: "/run/zerofs/9p.sock" },
        rpc: { unix_socket: "/run/zerofs/rpc.sock" }
      }
    })
  })

  it("of a reader serves blocks on a socket of its own, and nothing that changes the store", () => {
    const reader = parse(renderReaderConfig(section()))
    assert.deepStrictEqual(reader.servers, { nbd: { unix_socket: "/run/zerofs-checkpoint/nbd.sock" } })
    assert.strictEqual((reader.cache as { dir: string }).dir, "/data/zerofs-checkpoint")
  })

  it("has whatever directory is asked for, with nothing that ZeroFS would take for a variable", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", minLength: 1, maxLength: 40 }), (name) => {
        const directory = `/${name}`
        const read = parse(renderZerofsConfig(section({ cache_dir: directory, storage_url: directory })))
        const expanded = (text: string) => text.replaceAll("$$", "$")
        assert.strictEqual(expanded((read.cache as { dir: string }).dir), directory)
        assert.strictEqual(expanded((read.storage as { url: string }).url), `file://${directory}`)
        assert.isUndefined(read.aws)
      })
    )
  })

  it("tells how much memory it takes, to the mebibyte that it was written with", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4096 }), (gib) => {
        const read = parse(renderZerofsConfig(section({ cache_memory_gib: gib })))
        assert.strictEqual(cacheMemoryMib(read), gib * 1024)
      })
    )
    assert.strictEqual(cacheMemoryMib(parse("[cache]\nmemory_size_gb = 4.0")), 3815)
    assert.strictEqual(cacheMemoryMib({}), 239)
  })
})

describe("9P messages", () => {
  it("have their length in front, and texts in UTF-8 with theirs", () => {
    const message = encodeMessage(100, 0xffff, [
      ["u32", 65536],
      ["text", "9P2000.L"]
    ])
    assert.strictEqual(message.toString("hex"), "1500000064ffff0000010008003950323030302e4c")
  })

  it("list what a directory holds, and nothing where a listing is cut short or no listing", () => {
    const entry = (name: string, offset: bigint) => {
      const text = Buffer.from(name)
      const bytes = Buffer.alloc(24)
      bytes.writeBigUInt64LE(offset, 13)
      bytes.writeUInt16LE(text.length, 22)
      return Buffer.concat([bytes, text])
    }
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme", minLength: 1 })), (names) => {
        const data = Buffer.concat(names.map((name, index) => entry(name, BigInt(index + 1))))
        assert.deepStrictEqual(
          decodeEntries(data)?.map(({ name }) => name),
          names
        )
        if (data.length > 0) assert.isUndefined(decodeEntries(data.subarray(0, data.length - 1)))
      })
    )
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => void decodeEntries(Buffer.from(bytes)))
    )
  })
})
