import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { VolumeBackend } from "../../../src/services/VolumeBackend.ts"
import {
  entry,
  handmade,
  isRoot,
  leftovers,
  provision,
  readVolume,
  type SeedOptions,
  type Workbench,
  workbench
} from "./support.ts"

const DATA = "/upper/app/data"

const seeded = (make: (bench: Workbench) => string, options?: SeedOptions) =>
  Effect.gen(function* () {
    const bench = yield* workbench
    yield* provision(bench, make(bench), options)
    const volume = readVolume(bench)
    volume.check()
    return { ...volume, bench }
  })

const written = (bench: Workbench, ...parts: ReadonlyArray<Buffer>): string => {
  const file = path.join(bench.folder, "archive")
  fs.writeFileSync(file, handmade(...parts))
  return file
}

const untilEmpty = (directory: string) =>
  Effect.sync(() => fs.readdirSync(directory).length).pipe(
    Effect.repeat({ schedule: Schedule.spaced("20 millis"), until: (count) => count === 0 })
  )

const TREE = "mkdir -p t/nested; echo hello > t/nested/hello.txt; echo top > t/top;"

const makers: Readonly<Record<string, string>> = {
  "GNU tar": "tar -cf archive -C t .",
  "GNU tar, gzipped": "tar -czf archive -C t .",
  "GNU tar, gzipped in two members":
    "tar -cf w -C t .; (head -c 3000 w | gzip; tail -c +3001 w | gzip) > archive",
  "GNU tar in the format of POSIX": "tar --format=pax -cf archive -C t nested top",
  "GNU tar in the format of V7": "tar --format=v7 -cf archive -C t nested top",
  "GNU tar with xz": "tar -cJf archive -C t .",
  "GNU tar with zstd": "tar --zstd -cf archive -C t .",
  bsdtar: "bsdtar -cf archive -C t .",
  "bsdtar in the format ustar": "bsdtar --format ustar -cf archive -C t .",
  "Info-ZIP": "(cd t; zip -qr ../a.zip .); mv a.zip archive",
  "Info-ZIP into a pipe, with data descriptors": "(cd t; zip -qr - . | cat) > archive",
  "Info-ZIP with zip64": "(cd t; zip -qr -fz ../a.zip .); mv a.zip archive",
  "Info-ZIP without compression": "(cd t; zip -q0r ../a.zip .); mv a.zip archive",
  "bsdtar as a zip": "bsdtar --format zip -cf archive -C t .",
  "7z": "(cd t; 7z a -tzip ../a.zip . >/dev/null); mv a.zip archive",
  "Python's zipfile":
    "/usr/bin/python3 -c \"import zipfile; z=zipfile.ZipFile('archive','w',zipfile.ZIP_DEFLATED); z.write('t/top','top'); z.write('t/nested/hello.txt','nested/hello.txt')\""
}

describe("a volume starts with the files of an archive by", () => {
  for (const [tool, script] of Object.entries(makers)) {
    it.live(tool, () =>
      Effect.gen(function* () {
        const volume = yield* seeded((bench) => bench.made(`${TREE} ${script}`))
        assert.strictEqual(volume.text(`${DATA}/nested/hello.txt`), "hello\n")
        assert.strictEqual(volume.text(`${DATA}/top`), "top\n")
        assert.deepStrictEqual(volume.names(DATA), ["nested", "top"])
      })
    )
  }
})

describe("what a volume starts with", () => {
  it.live.skipIf(!isRoot)("belongs to 65534 with the directory itself, the directories above to root", () =>
    Effect.gen(function* () {
      const volume = yield* seeded((bench) =>
        bench.made(
          `${TREE} chown -R 1000:1000 t; chmod 4755 t/top; chmod 2750 t/nested; ln -s /etc/passwd t/link; tar -cf archive -C t .`
        )
      )
      assert.strictEqual(volume.owner("/upper"), "0755 0 0")
      assert.strictEqual(volume.owner("/upper/app"), "0755 0 0")
      assert.strictEqual(volume.owner(DATA), "0755 65534 65534")
      assert.strictEqual(volume.owner(`${DATA}/nested`), "0750 65534 65534")
      assert.strictEqual(volume.owner(`${DATA}/top`), "0755 65534 65534")
      assert.strictEqual(volume.owner(`${DATA}/link`), "0777 65534 65534")
      assert.include(volume.stat(`${DATA}/link`), 'Fast link dest: "/etc/passwd"')
    })
  )

  it.live("lies under / where the destination is /", () =>
    Effect.gen(function* () {
      const volume = yield* seeded((bench) => bench.made(`${TREE} tar -cf archive -C t .`), {
        destinationPath: "/"
      })
      assert.strictEqual(volume.text("/upper/nested/hello.txt"), "hello\n")
      assert.strictEqual(volume.owner("/upper"), "0755 65534 65534")
    })
  )

  it.live("keeps times, in whole seconds, those of directories too", () =>
    Effect.gen(function* () {
      const volume = yield* seeded((bench) =>
        bench.made(`${TREE} touch -d @1000000000 t/top t/nested; tar -cf archive -C t .`)
      )
      assert.match(volume.stat(`${DATA}/top`), /mtime: 0x3b9aca00/)
      assert.match(volume.stat(`${DATA}/nested`), /mtime: 0x3b9aca00/)
    })
  )

  it.live("has one inode for the names of one file", () =>
    Effect.gen(function* () {
      const volume = yield* seeded((bench) =>
        bench.made(`${TREE} ln t/top t/nested/too; tar -cf archive -C t .`)
      )
      assert.match(volume.stat(`${DATA}/top`), /Links: 2/)
      assert.strictEqual(volume.text(`${DATA}/nested/too`), "top\n")
    })
  )

  it.live("is without litter and with all that only looks like it", () =>
    Effect.gen(function* () {
      const volume = yield* seeded((bench) =>
        bench.made(
          `${TREE} mkdir t/__MACOSX; touch t/__MACOSX/x t/.DS_Store t/._top t/Thumbs.db t/desktop.ini t/.top.swp "t/.#top" "t/top~" t/.env; tar -czf archive -C t .`
        )
      )
      assert.deepStrictEqual(volume.names(DATA), [".env", "nested", "top", "top~"])
    })
  )

  it.live("keeps holes, in each of GNU tar's forms and bsdtar's", () =>
    Effect.gen(function* () {
      for (const make of [
        "tar -S --format=gnu -cf archive f",
        "tar -S --format=pax --sparse-version=0.0 -cf archive f",
        "tar -S --format=pax --sparse-version=0.1 -cf archive f",
        "tar -S --format=pax --sparse-version=1.0 -cf archive f",
        "bsdtar --format pax -cf archive f"
      ]) {
        const volume = yield* seeded((bench) =>
          bench.made(
            `truncate -s 1G f; for n in $(seq 0 40); do printf "piece-$n" | dd of=f bs=1M seek=$((n * 20)) conv=notrunc status=none; done; ${make}`
          )
        )
        const stat = volume.stat(`${DATA}/f`)
        assert.match(stat, /Size: 1073741824/)
        assert.isBelow(Number(/Blockcount: (\d+)/u.exec(stat)?.[1]), 1000)
        const piece = path.join(volume.bench.folder, "out")
        volume.dump(`${DATA}/f`, piece)
        const file = fs.openSync(piece, "r")
        const bytes = Buffer.alloc(8)
        fs.readSync(file, bytes, 0, 8, 40 * 20 * 2 ** 20)
        fs.closeSync(file)
        assert.strictEqual(bytes.toString(), "piece-40")
        fs.rmSync(piece)
      }
    })
  )

  it.live("keeps long names, and names that are no text, byte for byte", () =>
    Effect.gen(function* () {
      for (const format of ["gnu", "pax"]) {
        const long = `${"d".repeat(200)}/${"n".repeat(250)}`
        const volume = yield* seeded((bench) =>
          bench.made(
            `mkdir -p t/${"d".repeat(200)}; echo l > t/${long}; ln -s ${"x/".repeat(90)} t/s; echo b > t/$'b\\xe9\\xff'; echo u > t/zoë; tar --format=${format} -cf archive -C t .`
          )
        )
        assert.strictEqual(volume.text(`${DATA}/${long}`), "l\n")
        assert.deepStrictEqual(volume.names(DATA), ["b\xe9\xff", "d".repeat(200), "s", "zo\xc3\xab"])
        assert.match(volume.stat(`${DATA}/s`), /Size: 180/)
      }
    })
  )

  it.live("has the names of a zip whether they are UTF-8 or CP437", () =>
    Effect.gen(function* () {
      const volume = yield* seeded((bench) =>
        bench.madeByPython(
          [
            "import zipfile",
            "z = zipfile.ZipFile('archive', 'w')",
            "z.writestr('zo\\u00eb', 'u')",
            "z.writestr('cafe_', 'c')",
            "z.close()",
            "b = open('archive', 'rb').read().replace(b'cafe_', b'caf\\x82_')",
            "open('archive', 'wb').write(b)"
          ].join("\n")
        )
      )
      assert.deepStrictEqual(volume.names(DATA), [Buffer.from("café_").toString("latin1"), "zo\xc3\xab"])
    })
  )

  it.live("is what the later of two entries says, of any kind but a full directory", () =>
    Effect.gen(function* () {
      const volume = yield* seeded((bench) =>
        written(
          bench,
          entry({ name: "a" }, "first"),
          entry({ name: "a" }, "second"),
          entry({ name: "b", type: "2", link: "/etc/passwd" }),
          entry({ name: "b" }, "file"),
          entry({ name: "c", type: "2", link: "/etc" }),
          entry({ name: "c/", type: "5", mode: 0o700 }),
          entry({ name: "c/passwd" }, "ours"),
          entry({ name: "d/", type: "5" }),
          entry({ name: "d" }, "file"),
          entry({ name: "e" }, "e"),
          entry({ name: "f", type: "1", link: "e" }),
          entry({ name: "e" }, "other")
        )
      )
      const texts = ["a", "b", "c/passwd", "d", "e", "f"].map((name) => volume.text(`${DATA}/${name}`))
      assert.deepStrictEqual(texts, ["second", "file", "ours", "file", "other", "e"])
      assert.strictEqual(volume.owner(`${DATA}/c`), "0700 65534 65534")
    })
  )

  it.live("takes back whiteouts, opaque directories and the app's attributes, and no others", () =>
    Effect.gen(function* () {
      const pax = (key: string, value: string) => {
        const rest = ` ${key}=${value}\n`
        const length = rest.length + 2 >= 100 ? rest.length + 3 : rest.length + 2
        return entry({ name: "x", type: "x" }, Buffer.from(`${length}${rest}`, "latin1"))
      }
      const volume = yield* seeded((bench) =>
        written(
          bench,
          entry({ name: "gone", type: "3" }),
          entry({ name: 'dir "q"/gone too', type: "3" }),
          pax("SCHILY.xattr.trusted.overlay.opaque", "y"),
          entry({ name: "opaque/", type: "5" }),
          pax("SCHILY.xattr.user.note", 'a\n\x00"b" \xff'),
          entry({ name: "noted" }, "n"),
          pax("SCHILY.xattr.security.capability", "danger"),
          entry({ name: "capable" }, "n"),
          pax("SCHILY.xattr.trusted.overlay.redirect", "/etc"),
          entry({ name: "redirected/", type: "5" }),
          pax("LIBARCHIVE.xattr.user.other", "aGk="),
          entry({ name: "other" }, "n")
        )
      )
      for (const name of ["gone", 'dir "q"/gone too']) {
        assert.match(
          volume.stat(`${DATA}/${name}`),
          /Type: character special.*Device major\/minor number: 00:00/su
        )
      }
      assert.include(volume.attributes(`${DATA}/opaque`), 'trusted.overlay.opaque (1) = "y"')
      assert.include(volume.attributes(`${DATA}/noted`), "user.note (8) = 61 0a 00 22 62 22 20 ff")
      assert.include(volume.attributes(`${DATA}/other`), 'user.other (2) = "hi"')
      assert.strictEqual(volume.attributes(`${DATA}/capable`).trim(), "")
      assert.strictEqual(volume.attributes(`${DATA}/redirected`).trim(), "")
    })
  )

  it.live("may be nothing: an archive without entries makes an empty directory", () =>
    Effect.gen(function* () {
      for (const make of ["tar -cf archive -T /dev/null", "tar -czf archive -T /dev/null"]) {
        const volume = yield* seeded((bench) => bench.made(make))
        assert.deepStrictEqual(volume.names(DATA), [])
      }
    })
  )

  it.live("is put there once: the archive need not be there later", () =>
    Effect.gen(function* () {
      const bench = yield* workbench
      const archive = bench.made(`${TREE} tar -cf archive -C t .`)
      yield* provision(bench, archive)
      const before = fs.statSync(readVolume(bench).file)
      fs.rmSync(archive)
      yield* provision(bench, archive)
      yield* provision(bench, "/nowhere", { destinationPath: "/elsewhere" })
      assert.deepStrictEqual(fs.statSync(readVolume(bench).file).mtimeMs, before.mtimeMs)
    })
  )

  it.live("leaves no copy behind when the next daemon has started", () =>
    Effect.gen(function* () {
      const bench = yield* workbench
      const staging = path.join(bench.stateDir, "initial-contents")
      fs.mkdirSync(path.join(staging, "crashed/root/upper"), { recursive: true })
      fs.writeFileSync(path.join(staging, "crashed/root/upper/f"), "f")
      yield* VolumeBackend.use(() => untilEmpty(staging)).pipe(Effect.provide(bench.layer))
      assert.deepStrictEqual(leftovers(bench), [])
    })
  )
})

describe("a daemon that is not root", () => {
  it.live.skipIf(!isRoot)("gives the volume the same owners and modes", () =>
    Effect.gen(function* () {
      const bench = yield* workbench
      const archive = bench.made(
        `${TREE} chmod 0 t/top; chmod 0555 t/nested; tar -cf archive -C t .; chown -R 1000:1000 . ${bench.stateDir}; chmod 755 . ${bench.stateDir}`
      )
      const child = path.join(import.meta.dirname, "../../../bench/seed/child.ts")
      const asAnother = ["--reuid=1000", "--regid=1000", "--clear-groups"]
      execFileSync("setpriv", [
        ...asAnother,
        ...[process.execPath, child, bench.stateDir, archive, String(16 * 2 ** 20)]
      ])
      const volume = readVolume(bench)
      volume.check()
      const owners = ["/upper", "/upper/app", DATA, `${DATA}/top`, `${DATA}/nested`].map(volume.owner)
      assert.deepStrictEqual(owners, [
        ...["0755 0 0", "0755 0 0", "0755 65534 65534"],
        ...["0000 65534 65534", "0555 65534 65534"]
      ])
      assert.strictEqual(volume.text(`${DATA}/top`), "top\n")
    })
  )
})
