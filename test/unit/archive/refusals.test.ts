import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { entry, handmade, isRoot, leftovers, provision, type Workbench, workbench } from "./support.ts"

const MIB = 2 ** 20

interface Refusal {
  readonly because: RegExp
  readonly make: (bench: Workbench) => string
  readonly sizeBytes?: number
}

const written = (bench: Workbench, bytes: Uint8Array): string => {
  const file = path.join(bench.folder, "archive")
  fs.writeFileSync(file, bytes)
  return file
}

const tree = "mkdir -p t/a; echo one > t/a/one; echo two > t/two;"

const refusals: Readonly<Record<string, Refusal>> = {
  "an entry with .. that GNU tar packed": {
    because: /entry "\.\.\/out" that leaves the destination: its path has a "\.\."/,
    make: (bench) => bench.made("mkdir in; echo x > out; cd in; tar -P -cf ../archive ../out")
  },
  "an absolute entry that GNU tar packed": {
    because: /that leaves the destination: its path is absolute/,
    make: (bench) => bench.made('echo x > f; tar -P -cf archive "$PWD/f"')
  },
  "an entry with .. in a zip of Python's": {
    because: /entry "a\/\.\.\/\.\.\/out" that leaves the destination/,
    make: (bench) =>
      bench.madeByPython("import zipfile; zipfile.ZipFile('archive','w').writestr('a/../../out','x')")
  },
  "an absolute entry in a zip of Python's": {
    because: /leaves the destination: its path is absolute/,
    make: (bench) =>
      bench.madeByPython("import zipfile; zipfile.ZipFile('archive','w').writestr('/etc/x','x')")
  },
  "backslashes that lead out, in a zip made on Windows": {
    because: /leaves the destination/,
    make: (bench) =>
      bench.madeByPython(
        "import zipfile; i=zipfile.ZipInfo('a'); i.filename='a\\\\..\\\\..\\\\out'; i.create_system=0; zipfile.ZipFile('archive','w').writestr(i,'x')"
      )
  },
  "an entry that is written through a symbolic link": {
    because: /leaves the destination: entry "link\/passwd" is written through the symbolic link "link"/,
    make: (bench) =>
      bench.made(
        "mkdir a b; ln -s /etc a/link; mkdir b/link; echo x > b/link/passwd; tar -cf archive -C a link; tar -rf archive -C b link/passwd"
      )
  },
  "an entry that is written through a symbolic link within the destination": {
    because: /written through the symbolic link "d\/l"/,
    make: (bench) =>
      written(
        bench,
        handmade(
          entry({ name: "d/x/", type: "5" }),
          entry({ name: "d/l", type: "2", link: "x" }),
          entry({ name: "d/l/y" }, "y")
        )
      )
  },
  "a hard link to a file outside": {
    because: /hard link "h" to "\.\.\/\.\.\/etc\/passwd", which leaves the destination/,
    make: (bench) => written(bench, handmade(entry({ name: "h", type: "1", link: "../../etc/passwd" })))
  },
  "a hard link to an absolute path": {
    because: /hard link "h" to "\/etc\/passwd", which leaves the destination: its path is absolute/,
    make: (bench) => written(bench, handmade(entry({ name: "h", type: "1", link: "/etc/passwd" })))
  },
  "a hard link that reaches out through a symbolic link": {
    because: /hard link "h" to "l\/passwd", which leaves the destination through the symbolic link "l"/,
    make: (bench) =>
      written(
        bench,
        handmade(
          entry({ name: "l", type: "2", link: "/etc" }),
          entry({ name: "h", type: "1", link: "l/passwd" })
        )
      )
  },
  "a hard link to what is not there": {
    because: /hard link "h" to "nothing", which is not in the archive before it/,
    make: (bench) => written(bench, handmade(entry({ name: "h", type: "1", link: "nothing" })))
  },
  "a symbolic link in a zip of Info-ZIP's": {
    because: /entry "t\/l" that is a symbolic link, which a zip may not have/,
    make: (bench) =>
      bench.made("mkdir t; ln -s /etc/passwd t/l; zip -qry archive.zip t; mv archive.zip archive")
  },
  "a symbolic link in a zip of 7z's": {
    because: /a symbolic link, which a zip may not have/,
    make: (bench) =>
      bench.made(
        "mkdir t; ln -s /etc/passwd t/l; 7z a -snl -tzip archive.zip t >/dev/null; mv archive.zip archive"
      )
  },
  "a FIFO": {
    because: /entry "t\/pipe" that is a FIFO/,
    make: (bench) => bench.made("mkdir t; mkfifo t/pipe; tar -cf archive t")
  },
  "a character device": {
    because: /character device "null" \(1, 3\)/,
    make: (bench) => written(bench, handmade(entry({ name: "null", type: "3", device: [1, 3] })))
  },
  "a block device of major and minor 0": {
    because: /entry "b" that is a block device/,
    make: (bench) => written(bench, handmade(entry({ name: "b", type: "4" })))
  },
  "a file that is larger than the volume": {
    because: /does not fit: it takes more than the \d+ bytes/,
    make: (bench) => bench.made("head -c 20M /dev/urandom > big; tar -cf archive big")
  },
  "a zip that is larger than the volume": {
    because: /does not fit: it takes more than the \d+ bytes/,
    make: (bench) =>
      bench.made("head -c 20M /dev/urandom > big; zip -q archive.zip big; mv archive.zip archive")
  },
  "more files than the volume has inodes": {
    because: /does not fit: it has more than the \d+ files and directories/,
    sizeBytes: 8 * MIB,
    make: (bench) =>
      bench.madeByPython(
        "import tarfile\nt=tarfile.open('archive','w:gz')\nfor n in range(9000): t.addfile(tarfile.TarInfo('f%d'%n))\nt.close()"
      )
  },
  "a gzip bomb": {
    because: /does not fit/,
    make: (bench) => bench.made("truncate -s 3G zeros; tar -cf - zeros | gzip -1 > archive; rm zeros")
  },
  "a bomb in files that are skipped": {
    because: /does not fit: with what is skipped or replaced in it/,
    make: (bench) => bench.made("mkdir d; truncate -s 300M d/.DS_Store; tar -czf archive d")
  },
  "a zip bomb in entries that share a name": {
    because: /does not fit: with what is skipped or replaced in it/,
    make: (bench) =>
      bench.madeByPython(
        "import zipfile,warnings\nwarnings.simplefilter('ignore')\nz=zipfile.ZipFile('archive','w',zipfile.ZIP_DEFLATED)\nfor n in range(40): z.writestr('same',bytes(5<<20))\nz.close()"
      )
  },
  "a zip bomb": {
    because: /does not fit/,
    make: (bench) =>
      bench.made("truncate -s 1G zeros; zip -q archive.zip zeros; mv archive.zip archive; rm zeros")
  },
  "a tar that ends in the middle of a file": {
    because: /is truncated: it ends in the middle/,
    make: (bench) =>
      bench.made("head -c 100K /dev/urandom > f; tar -cf whole f; head -c 50000 whole > archive")
  },
  "a tar that ends between two files": {
    because: /is truncated/,
    make: (bench) => bench.made(`${tree} tar -b1 -cf whole -C t two a; head -c 1024 whole > archive`)
  },
  "a gzip that ends early": {
    because: /is truncated: its compressed data has no end/,
    make: (bench) =>
      bench.made("head -c 100K /dev/urandom > f; tar -czf whole f; head -c 50000 whole > archive")
  },
  "a zip that ends early": {
    because: /is truncated: its end is missing/,
    make: (bench) =>
      bench.made("head -c 100K /dev/urandom > f; zip -q whole.zip f; head -c 50000 whole.zip > archive")
  },
  "a tar with a damaged header": {
    because: /is corrupt: the checksum of a header is wrong/,
    make: (bench) => {
      const bytes = handmade(entry({ name: "a" }, "a"), entry({ name: "b" }, "b"))
      bytes[1024 + 3] = 0x41
      return written(bench, bytes)
    }
  },
  "a gzip with damaged data": {
    because: /is corrupt/,
    make: (bench) =>
      bench.made(
        "head -c 100K /dev/urandom > f; tar -czf archive f; printf 'XXXXXXXX' | dd of=archive bs=1 seek=60000 conv=notrunc status=none"
      )
  },
  "a zip whose content has another checksum": {
    because: /is corrupt: the checksum of entry "f" is wrong/,
    make: (bench) => {
      const file = bench.made("printf 'marker-content' > f; zip -q0 archive.zip f; mv archive.zip archive")
      const bytes = fs.readFileSync(file)
      bytes[bytes.indexOf("marker")] = 0x4d
      return written(bench, bytes)
    }
  },
  "a zip that Info-ZIP protected with a password": {
    because: /is protected with a password/,
    make: (bench) => bench.made("echo x > f; zip -q -P secret archive.zip f; mv archive.zip archive")
  },
  "a zip that 7z protected with AES": {
    because: /is protected with a password/,
    make: (bench) =>
      bench.made(
        "echo x > f; 7z a -tzip -mem=AES256 -psecret archive.zip f >/dev/null; mv archive.zip archive"
      )
  },
  "a zip with a method that is not read": {
    because: /is compressed with LZMA/,
    make: (bench) =>
      bench.made(
        "head -c 9999 /dev/zero > f; 7z a -tzip -mm=LZMA archive.zip f >/dev/null; mv archive.zip archive"
      )
  },
  "a file that is no archive": {
    because: /is neither a tar, plain or gzipped, nor a zip/,
    make: (bench) => written(bench, Buffer.from("just a note\n".repeat(100)))
  },
  "a gzip of something else": {
    because: /holds no tar/,
    make: (bench) => bench.made("seq 1 1000 | gzip > archive")
  },
  "an empty file": { because: /is empty/, make: (bench) => written(bench, Buffer.alloc(0)) },
  "a tar of bzip2": {
    because: /bzip2, which is not read/,
    make: (bench) => written(bench, Buffer.from("BZh91AY&SY"))
  },
  "a name with a NUL byte": {
    because: /has a NUL byte in its name/,
    make: (bench) =>
      written(bench, handmade(entry({ name: "x", type: "x" }, "13 path=a\0bc\n"), entry({ name: "y" })))
  },
  "an extended header of a size that nobody needs": {
    because: /has a header of 9000000 bytes/,
    make: (bench) => written(bench, handmade(entry({ name: "x", type: "x", size: 9_000_000 })))
  },
  "a file in the place of a directory that is not empty": {
    because: /entry "d" in the place of a directory that is not empty/,
    make: (bench) => written(bench, handmade(entry({ name: "d/f" }, "f"), entry({ name: "d" }, "file")))
  },
  "a file below a file": {
    because: /entry "f\/g" in "f", which is not a directory/,
    make: (bench) => written(bench, handmade(entry({ name: "f" }, "f"), entry({ name: "f/g" }, "g")))
  },
  "a kind of entry that is not known": {
    because: /of a kind that is not known \("Q"\)/,
    make: (bench) => written(bench, handmade(entry({ name: "q", type: "Q" })))
  }
}

describe("a volume is not made, and says why, for", () => {
  for (const [what, { because, make, sizeBytes }] of Object.entries(refusals)) {
    it.live(what, () =>
      Effect.gen(function* () {
        const bench = yield* workbench
        const archive = make(bench)
        const error = yield* Effect.flip(
          provision(bench, archive, sizeBytes === undefined ? {} : { sizeBytes })
        )
        assert.match(
          String((error as Error).message),
          /^volume vol-1 cannot be created: its initial contents, object "seeds\/app-1": the archive /u
        )
        assert.match(String((error as Error).message), because)
        assert.isAtMost(String((error as Error).message).length, 512)
        assert.deepStrictEqual(leftovers(bench), [])
      })
    )
  }
})

describe("a volume that was refused", () => {
  it.live("is made by a later call with another archive", () =>
    Effect.gen(function* () {
      const bench = yield* workbench
      yield* Effect.flip(provision(bench, written(bench, Buffer.from("nothing"))))
      yield* provision(bench, written(bench, handmade(entry({ name: "a" }, "a"))))
    })
  )

  it.live.skipIf(!isRoot)("left nothing where an entry pointed", () =>
    Effect.gen(function* () {
      const bench = yield* workbench
      const target = path.join(bench.folder, "target")
      fs.mkdirSync(target)
      const bytes = handmade(
        entry({ name: "l", type: "2", link: target }),
        entry({ name: "l/planted" }, "x"),
        entry({ name: "l/", type: "5", mode: 0o777 })
      )
      yield* Effect.flip(provision(bench, written(bench, bytes)))
      assert.deepStrictEqual(fs.readdirSync(target), [])
    })
  )
})
