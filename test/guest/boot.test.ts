/** PID 1 in a real guest, and a host that may misbehave. */
import { readFileSync, truncateSync } from "node:fs"
import { afterAll, afterEach, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import type { BootSpec } from "../../src/services/Guest.ts"
import { encodeHostRecord } from "../../src/wire/encode.ts"
import { buildTenant } from "../tenant/build.ts"
import { image, makeWorkshop, superblock } from "./drives.ts"
import { Machine } from "./machine.ts"

const ADDRESS = "10.201.0.2"
const workshop = makeWorkshop()
const machines: Array<Machine> = []
afterEach(() => Promise.all(machines.splice(0).map((machine) => machine.end())))
afterAll(workshop.remove)

interface Drives {
  readonly layers?: ReadonlyArray<string>
  readonly volume?: string
}

const boot = (drives: Drives = {}) => {
  const machine = new Machine({
    ...image(),
    layers: drives.layers ?? [],
    volume: drives.volume ?? workshop.volume()
  })
  machines.push(machine)
  return machine
}

const spec = (changes: Partial<BootSpec>): BootSpec => ({
  hostname: "shop",
  network: { address: ADDRESS, prefixLength: 24, gateway: "10.201.0.1" },
  nameservers: ["192.0.2.53", "192.0.2.54"],
  layerCount: 0,
  program: "/bin/sh",
  args: [],
  workingDirectory: "/app/data",
  environment: [["PATH", "/usr/bin:/bin"]],
  restartPolicy: {
    maxRestarts: 0,
    initialBackoffMs: 50,
    maxBackoffMs: 120,
    backoffFactor: 2,
    resetAfterMs: 600_000
  },
  hostTime: Date.now(),
  ...changes
})

const shell = (script: string, changes: Partial<BootSpec> = {}): BootSpec =>
  spec({ args: ["-c", script], ...changes })

/** Boots, hands the spec over, and waits for the program to run. */
const run = async (given: BootSpec, drives: Drives = {}) => {
  const machine = boot(drives)
  const conversation = await machine.greet()
  assert.strictEqual((await conversation.boot(given)).outcome, "taken")
  await conversation.event("started")
  return { machine, conversation }
}

/** What the host is told of a spec that cannot be run; the guest ends by itself. */
const failureOf = async (given: BootSpec, drives: Drives = {}) => {
  const machine = boot(drives)
  const conversation = await machine.greet()
  await conversation.boot(given)
  const { reason } = await conversation.event("failed")
  assert.strictEqual(await machine.exited, 0)
  assert.include(machine.console, `nibrunner: failed: ${reason}`)
  return reason
}

let tenant: Uint8Array
beforeAll(async () => {
  tenant = readFileSync(await Effect.runPromise(buildTenant))
})

/** Prints each question and what the shell answers, so that one guest answers many. */
const questions = {
  id: "id",
  cwd: "pwd; stat -c '%u:%g' .; touch here && echo writable",
  environment: "tr '\\0' '\\n' < /proc/$$/environ",
  status: "cat /proc/self/status",
  devices: "ls /dev; stat -c '%A' /dev/null /dev/random; echo lost > /dev/null; head -c 4 /dev/zero | wc -c",
  temporary:
    "stat -c '%a %T %n' -f /tmp /dev/shm; stat -c '%a' /tmp /dev/shm; touch /tmp/a /dev/shm/a && echo writable",
  resolver: "cat /etc/resolv.conf; test -L /etc/resolv.conf || echo plain",
  hostname: "cat /proc/sys/kernel/hostname",
  clock: "date +%s",
  mounts: "cat /proc/self/mountinfo",
  processes:
    "ls /proc | grep '^[0-9]' | wc -l; cat /proc/1/environ 2>&1; ls /proc/1/root 2>&1; kill -9 1 2>&1",
  outside: "ls /sys /volume /layer /init /modules 2>&1; ls /dev | grep -c vport",
  files:
    "ulimit -n; ls -l /proc/$$/fd | grep -v total | awk '{print $9, $11}' 2>/dev/null || ls -l /proc/$$/fd",
  namespaces: "unshare --user true 2>&1; cat /proc/sys/user/max_user_namespaces",
  refused: "touch /etc/x 2>&1; touch /x 2>&1; mount -t tmpfs x /tmp 2>&1",
  layers: "cat /which /from-one /from-two; echo",
  addresses:
    "cat /proc/net/fib_trie | grep -o '10.201.0.2$\\|127.0.0.1$' | sort -u; cat /proc/net/route | grep -c 00000000"
}
type Question = keyof typeof questions

describe("a program in a guest", () => {
  let answers: Readonly<Record<Question, string>>
  let askedAt: number

  beforeAll(async () => {
    const one = workshop.squashfs({ which: { bytes: "one" }, "from-one": { bytes: "1" } })
    const two = workshop.ext4(
      {
        which: { bytes: "two" },
        "from-two": { bytes: "2" },
        "etc/resolv.conf": { bytes: "nameserver 9.9.9.9" }
      },
      { dirty: true }
    )
    const script = Object.entries(questions)
      .map(([name, question]) => `echo "=== ${name}"; ${question}`)
      .join("\n")
    askedAt = Date.now()
    const { conversation } = await run(
      shell(`${script}\necho "=== end"; sleep 1000`, {
        layerCount: 2,
        environment: [
          ["PATH", "/usr/bin:/bin"],
          ["GREETING", "grüße ☃ = $HOME\nsecond line"]
        ]
      }),
      { layers: [one, two] }
    )
    const text = await conversation.output("=== end")
    const parts = text.split(/^=== (.*)\n/mu)
    answers = Object.fromEntries(
      Object.keys(questions).map((name) => [name, parts[parts.indexOf(name) + 1] ?? ""])
    ) as Record<Question, string>
  }, 300_000)

  it("is nobody: uid and gid 65534 and no other group", () => {
    assert.match(answers.id, /^uid=65534\S* gid=65534\S* groups=65534\S*\n$/u)
  })

  it("has no capability and no way to one", () => {
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
      assert.match(answers.status, new RegExp(`^${set}:\\s*0+$`, "mu"))
    }
    assert.match(answers.status, /^NoNewPrivs:\s*1$/mu)
    assert.match(answers.namespaces, /unshare failed.*\n0\n$/u)
  })

  it("starts with no signal blocked or ignored", () => {
    assert.match(answers.status, /^SigBlk:\s*0+$/mu)
    assert.match(answers.status, /^SigIgn:\s*0+$/mu)
  })

  it("stands in its working directory, which is its own", () => {
    assert.strictEqual(answers.cwd, "/app/data\n65534:65534\nwritable\n")
  })

  it("may write nowhere else but in /tmp and /dev/shm", () => {
    assert.strictEqual(answers.refused.match(/Permission denied/gu)?.length, 2)
    assert.match(answers.refused, /mount:[^\n]*(permission denied|must be superuser)/u)
    assert.include(answers.temporary, "1777\n1777\nwritable\n")
    assert.strictEqual(answers.temporary.match(/tmpfs/gu)?.length, 2)
  })

  it("has the environment of the boot spec and nothing else", () => {
    assert.strictEqual(answers.environment, "PATH=/usr/bin:/bin\nGREETING=grüße ☃ = $HOME\nsecond line\n")
  })

  it("finds the devices that programs expect, and they work", () => {
    const names = ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"]
    assert.strictEqual(
      answers.devices,
      `${[...names, "urandom", "zero"].join("\n")}\ncrw-rw-rw-\ncrw-rw-rw-\n4\n`
    )
  })

  it("resolves by the nameservers of the boot spec, whatever a layer says", () => {
    assert.strictEqual(answers.resolver, "nameserver 192.0.2.53\nnameserver 192.0.2.54\nplain\n")
  })

  it("has the hostname, the addresses and the time that the host gave", () => {
    assert.strictEqual(answers.hostname, "shop\n")
    assert.strictEqual(answers.addresses, "10.201.0.2\n127.0.0.1\n2\n")
    assert.closeTo(Number(answers.clock) * 1000, askedAt, 120_000)
  })

  it("sees the layers stacked, the later over the earlier, an ext4 image that was left dirty among them", () => {
    assert.strictEqual(answers.layers, "two12\n")
  })

  it("has nothing in sight but its root: no initramfs, no drive, no sysfs, no channel", () => {
    for (const path of ["/volume", "/layer", "/init", "/modules"]) {
      assert.include(answers.outside, `'${path}': No such file`)
    }
    assert.isTrue(answers.outside.endsWith("/sys:\n0\n"), answers.outside)
    assert.notMatch(answers.mounts, /vport|devtmpfs|sysfs|rootfs/u)
    for (const line of answers.mounts.trim().split("\n")) {
      assert.match(line, / \/(|proc|dev|dev\/pts|dev\/shm|tmp) \S*nosuid/u)
    }
  })

  it("cannot read, enter or kill the first process of its namespace", () => {
    assert.match(answers.processes, /\/proc\/1\/environ: Permission denied/u)
    assert.match(answers.processes, /'\/proc\/1\/root'?: Permission denied/u)
    assert.match(answers.processes, /kill: Operation not permitted/u)
  })

  it("inherits three descriptors and may open many", () => {
    assert.match(answers.files, /^65536\n/u)
    assert.include(answers.files, "0 /dev/null")
    assert.strictEqual(answers.files.match(/pipe:/gu)?.length, 2)
    assert.notMatch(answers.files, /eventpoll|signalfd|vport|pidfd/u)
  })
})

describe("a program that ends", () => {
  it("is started again under its policy, alone, and the host is told each time, then that the restarts are used up", async () => {
    const script = `
      n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n
      echo "run $n sees $(grep -l '^sleep' /proc/[0-9]*/comm 2>/dev/null | wc -l) left over"
      sleep 9999 &
      case $n in 0) exit 3;; 1) kill -9 $$;; 2) exit 0;; esac
      echo "last words" >&2
      exit 7`
    const { machine, conversation } = await run(
      shell(script, {
        restartPolicy: {
          maxRestarts: 3,
          initialBackoffMs: 50,
          maxBackoffMs: 120,
          backoffFactor: 2,
          resetAfterMs: 600_000
        }
      })
    )
    const told = { kind: "restarting", budget: 3 } as const
    assert.deepStrictEqual(await conversation.event("restarting"), {
      ...told,
      attempt: 1,
      total: 1,
      exit: { code: 3 },
      backoffMs: 50,
      reason: "the program ended with exit code 3"
    })
    assert.deepStrictEqual(await conversation.event("restarting"), {
      ...told,
      attempt: 2,
      total: 2,
      exit: { signal: 9 },
      backoffMs: 100,
      reason: "the program was ended by signal 9 (SIGKILL)"
    })
    assert.deepStrictEqual(await conversation.event("restarting"), {
      ...told,
      attempt: 3,
      total: 3,
      exit: { code: 0 },
      backoffMs: 120,
      reason: "the program ended with exit code 0"
    })
    const { reason } = await conversation.event("failed")
    assert.strictEqual(reason, "the program ended with exit code 7 and its 3 restarts are used up")
    const text = await conversation.output("run 3")
    for (const n of [0, 1, 2, 3]) assert.include(text, `run ${n} sees 0 left over`)
    assert.include(await conversation.output("last words", "stderr"), "last words")
    assert.strictEqual(await machine.exited, 0)
  })

  it("has its budget back after a run that was long enough", async () => {
    const { conversation } = await run(
      shell("exit 1", {
        restartPolicy: {
          maxRestarts: 1,
          initialBackoffMs: 0,
          maxBackoffMs: 0,
          backoffFactor: 1,
          resetAfterMs: 0
        }
      })
    )
    for (const total of [1, 2, 3]) {
      const { attempt, total: counted } = await conversation.event("restarting")
      assert.deepStrictEqual([attempt, counted], [1, total])
    }
  })
})

describe("what cannot be run is told in words", () => {
  const cases: ReadonlyArray<readonly [name: string, BootSpec, () => Drives, RegExp | string]> = [
    [
      "no program",
      spec({ program: "/app/server" }),
      () => ({}),
      "there is no program at /app/server in any layer"
    ],
    ["a directory", spec({ program: "/etc" }), () => ({}), "/etc is not a file"],
    [
      "a program that nobody may execute",
      spec({ program: "/app/server", layerCount: 1 }),
      () => ({ layers: [workshop.squashfs({ "app/server": { bytes: tenant, mode: 0o700 } })] }),
      "/app/server cannot be executed by uid 65534"
    ],
    [
      "a file that is no program",
      spec({ program: "/app/server", layerCount: 1 }),
      () => ({ layers: [workshop.squashfs({ "app/server": { bytes: "\0rubbish", mode: 0o755 } })] }),
      "/app/server cannot be run: Exec format error"
    ],
    [
      "a script whose interpreter is absent",
      spec({ program: "/app/server", layerCount: 1 }),
      () => ({ layers: [workshop.squashfs({ "app/server": { bytes: "#!/no/such\n", mode: 0o755 } })] }),
      "/app/server cannot be run: No such file or directory (the loader or interpreter that it names is absent)"
    ],
    [
      "a working directory that is a file",
      spec({ workingDirectory: "/etc/passwd" }),
      () => ({}),
      "the working directory /etc/passwd cannot be used: Not a directory"
    ],
    [
      "a layer that is no filesystem",
      spec({ layerCount: 1 }),
      () => ({ layers: [workshop.file("rubbish")] }),
      "layer 1 (/dev/vdb) holds neither squashfs nor ext4"
    ],
    [
      "a squashfs that is cut short",
      spec({ layerCount: 1 }),
      () => ({ layers: [workshop.file("hsqs and nothing else")] }),
      /^layer 1 \(\/dev\/vdb\) cannot be mounted: /u
    ],
    [
      "a volume that is no filesystem",
      spec({}),
      () => ({ volume: workshop.file("rubbish") }),
      "the volume (/dev/vdb) cannot be mounted: Invalid argument"
    ],
    [
      "more layers than drives",
      spec({ layerCount: 3 }),
      () => ({}),
      "there is no drive /dev/vde, which 3 layers and a volume ask for"
    ]
  ]
  for (const [name, given, drives, expected] of cases) {
    it(`${name}`, async () => {
      const reason = await failureOf(given, drives())
      if (typeof expected === "string") assert.strictEqual(reason, expected)
      else assert.match(reason, expected)
    })
  }
})

describe("the end of a guest", () => {
  it("SIGTERM first: the program's last words arrive, the volume is clean, and the next guest finds its files", async () => {
    const volume = workshop.volume(16)
    const { machine, conversation } = await run(
      shell("trap 'echo farewell; echo kept > kept; exit 0' TERM; echo ready; sleep 1000 & wait"),
      { volume }
    )
    await conversation.output("ready")
    conversation.send({ kind: "shutdown", graceMs: 60_000 })
    assert.strictEqual((await conversation.receipt()).outcome, "taken")
    assert.strictEqual(await machine.exited, 0)
    assert.include(await conversation.output("farewell"), "farewell")
    assert.match(superblock(volume), /Filesystem state:\s+clean/u)
    assert.notInclude(superblock(volume), "needs_recovery")

    // the device has grown meanwhile
    truncateSync(volume, 48 * 1024 * 1024)
    const next = await run(shell("cat kept; df -k / | tail -1; sleep 1000"), { volume })
    const text = await next.conversation.output("/\n")
    assert.match(text, /^kept\n/u)
    assert.isAbove(Number(text.split(/\s+/u)[2]), 36_000, text)
  })

  it("SIGKILL after the grace, for a program that does not listen", async () => {
    const { machine, conversation } = await run(
      shell("trap '' TERM; (trap '' TERM; sleep 1000) & echo deaf; while :; do sleep 1; done")
    )
    await conversation.output("deaf")
    conversation.send({ kind: "shutdown", graceMs: 500 })
    assert.strictEqual(await machine.exited, 0)
    assert.include(machine.console, "reboot: Restarting system")
  })

  it("at once, when no program was ever handed over", async () => {
    const machine = boot()
    const conversation = await machine.greet()
    conversation.send({ kind: "shutdown", graceMs: 60_000 })
    assert.strictEqual(await machine.exited, 0)
  })
})

describe("a host that misbehaves", () => {
  it("may leave half a record behind: the next connection is understood, and the guest is as it was", async () => {
    const { machine, conversation } = await run(shell("echo one; sleep 1000"))
    await conversation.output("one")
    const record = Result.getOrThrow(encodeHostRecord({ kind: "shutdown", graceMs: 0xffffffff }))
    conversation.raw(record.subarray(0, record.length - 2))
    conversation.close()
    const next = await machine.connect()
    const { phase } = await next.hello()
    assert.strictEqual(phase, "running")
    assert.strictEqual(await next.probe(9), "refused")
    assert.deepStrictEqual(
      next.records.filter(({ kind }) => kind === "receipt"),
      []
    )
  })

  it("may say rubbish, and hello again on the same connection", async () => {
    const { conversation } = await run(shell("sleep 1000"))
    conversation.raw(new Uint8Array(100_000).fill(0xfe))
    assert.strictEqual((await conversation.hello()).phase, "running")
    conversation.raw(Uint8Array.of(0x7f, 0xff, 0xff, 0xff, 0x02, 1, 2, 3))
    assert.strictEqual((await conversation.hello()).phase, "running")
  })

  it("gets no second program, and is told what it cannot have", async () => {
    const machine = boot()
    const conversation = await machine.greet()
    conversation.raw(Uint8Array.of(0, 0, 0, 3, 0x02, 0, 0, 0, 0x0a))
    assert.strictEqual((await conversation.receipt()).outcome, "not-understood")
    assert.strictEqual((await conversation.boot(shell("echo mine; sleep 1000"))).outcome, "taken")
    assert.strictEqual((await conversation.boot(shell("echo yours"))).outcome, "not-now")
    await conversation.output("mine")
  })

  it("may not read: the program goes on, and what was lost is counted to the byte", async () => {
    const bytes = 3_000_000
    const listen = `perl -e 'use IO::Socket::INET; $s = IO::Socket::INET->new(Listen => 5, LocalPort => 3000); 1 while $s->accept'`
    const machine = boot()
    const conversation = await machine.greet()
    conversation.acknowledges = false
    await conversation.boot(shell(`head -c ${bytes} /dev/zero; echo; echo finished >&2; exec ${listen}`))
    await conversation.event("started")
    // Nothing is acknowledged, so the ring fills and the program's last line waits behind the gap.
    while ((await conversation.probe(3000)) !== "accepted") await Promise.resolve()
    conversation.close()
    const next = await machine.greet()
    let received = 0
    let lost = 0
    let finished = false
    let last = 0
    // what waits in one pipe may be told after what came later through the other
    while (!finished || received + lost < bytes + 1) {
      const record = await next.next("event", (candidate) => candidate.kind === "event")
      if (record.kind !== "event") continue
      if (last > 0) assert.strictEqual(record.sequence, last + 1)
      last = record.sequence
      const event = record.event
      if (event?.kind === "gap") lost += event.bytes
      if (event?.kind === "output" && event.stream === "stdout") received += event.bytes.length
      finished ||= event?.kind === "output" && event.stream === "stderr"
    }
    assert.strictEqual(received + lost, bytes + 1)
    assert.isAbove(lost, 0)
  })

  it("is told again what it had not acknowledged when it went away", async () => {
    const machine = boot()
    const conversation = await machine.greet()
    conversation.acknowledges = false
    await conversation.boot(shell("echo first; sleep 1000"))
    await conversation.output("first")
    conversation.close()
    const next = await machine.connect()
    assert.strictEqual((await next.hello()).nextSequence, 1)
    await next.event("started")
    assert.strictEqual(await next.output("first"), "first\n")
    next.close()
    const last = await machine.connect()
    assert.strictEqual((await last.hello()).nextSequence, 3)
  })
})

describe("a probe", () => {
  it("finds what the host could reach: not a program that listens on loopback alone", async () => {
    const layer = workshop.squashfs({ "app/server": { bytes: tenant, mode: 0o755 } })
    const onLoopback = `perl -e 'use IO::Socket::INET;
      my $socket = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1:3001") or die $@;
      print STDERR "perl listens"; sleep 1000'`
    const { conversation } = await run(shell(`/app/server & ${onLoopback} & wait`, { layerCount: 1 }), {
      layers: [layer]
    })
    await conversation.output("perl listens", "stderr")
    await conversation.output("listening")
    assert.strictEqual(await conversation.probe(3000), "accepted")
    assert.strictEqual(await conversation.probe(3001), "refused")
    assert.strictEqual(await conversation.probe(3002), "refused")
  })
})
