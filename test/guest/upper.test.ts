/** What overlayfs makes of a volume that holds more than files, and what it leaves on one. */
import { assert, describe, it } from "@effect/vitest"
import { debugfs } from "./drives.ts"
import { guestsOfThisFile } from "./guests.ts"

const { workshop, run } = guestsOfThisFile()

const shell = (script: string, drives: { readonly layers: ReadonlyArray<string>; readonly volume: string }) =>
  run({ program: "/bin/sh", args: ["-c", `${script}; echo done; exec sleep 100000`], layerCount: 1 }, drives)

const file = { bytes: "of the layer\n" }
const layer = workshop.squashfs(
  {
    "srv/kept": file,
    "srv/gone": file,
    "srv/opaque/below": file,
    "srv/merged/below": file,
    "srv/user/below": file
  },
  { open: ["srv/opaque", "srv/merged", "srv/user"] }
)

describe("a volume", () => {
  it("hides with whiteouts and opaque directories what the layers hold; only those of the trusted namespace", async () => {
    const volume = workshop.volume(32, [
      ...["upper", ...["", "/opaque", "/merged", "/user", "/moved"].map((path) => `upper/srv${path}`)].map(
        (path) => `mkdir ${path}`
      ),
      "cd upper/srv",
      "mknod gone c 0 0",
      "ea_set opaque trusted.overlay.opaque y",
      "ea_set user user.overlay.opaque y",
      "ea_set moved trusted.overlay.redirect /srv/merged",
      ...["opaque", "merged", "user"].map((directory) => `mkdir ${directory}/above`)
    ])
    const { conversation } = await shell(
      "cd /srv; ls -d [!m]* [!m]*/* merged/*; ls moved > /dev/null && echo followed",
      { layers: [layer], volume }
    )
    assert.deepStrictEqual((await conversation.output("done")).trim().split("\n"), [
      "kept",
      "merged/above",
      "merged/below",
      "opaque",
      "opaque/above",
      "user",
      "user/above",
      "user/below",
      "done"
    ])
  })

  it("is left with whiteouts, which may be names of one inode, and opaque directories, for what the program deletes and replaces", async () => {
    const volume = workshop.volume()
    const { conversation, machine } = await shell(
      "cd /srv; rm kept gone; rm -r opaque; mkdir opaque; echo new > opaque/new; rm merged/below",
      { layers: [layer], volume }
    )
    await conversation.output("done")
    conversation.send({ kind: "shutdown", graceMs: 10_000 })
    assert.strictEqual(await machine.exited, 0)

    const told = (path: string) => debugfs(volume, [`stat /upper/srv/${path}`])
    const inodes = ["kept", "gone", "merged/below"].map((path) => {
      assert.match(told(path), /Type: character special/u)
      assert.match(told(path), /Device major\/minor number: 00:00/u)
      return /Inode: (\d+)/u.exec(told(path))?.[1]
    })
    assert.strictEqual(new Set(inodes).size, 1)
    assert.include(debugfs(volume, ["ea_get /upper/srv/opaque trusted.overlay.opaque"]), "y")
    assert.include(debugfs(volume, ["ls /upper/srv/opaque"]), "new")
    // the working directory was given to the program: it is a copy of the layer's
    assert.match(debugfs(volume, ["stat /upper/srv"]), /User: 65534 +Group: 65534/u)
    assert.notInclude(debugfs(volume, ["ea_list /upper/srv/merged"]), "opaque")
  })
})
