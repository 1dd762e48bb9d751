import { spawn } from "node:child_process"
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { eventually, freePort, listenRaw } from "./harness.ts"
import { sha256 } from "./node-app.ts"
import { openDatagrams, rawPort } from "./raw-harness.ts"
import { folder } from "./tls-harness.ts"
import { run, withTool } from "./tools.ts"

describe("raw ports", () => {
  /** A name server that says that every name is 192.0.2.7. */
  const dnsAnswer = (question: Buffer): Buffer => {
    const end = question.indexOf(0, 12) + 5
    const header = Buffer.from(question.subarray(0, 12))
    header.writeUInt16BE(0x8180, 2)
    header.writeUInt16BE(1, 6)
    header.writeUInt16BE(0, 10)
    const record = Buffer.from("c00c000100010000003c0004c0000207", "hex")
    return Buffer.concat([header, question.subarray(12, end), record])
  }

  withTool("dig")("carry dig's questions over UDP and TCP to an app that sleeps", () =>
    Effect.gen(function* () {
      const guest = yield* openDatagrams(0, (text, answer) => answer(dnsAnswer(Buffer.from(text, "latin1"))))
      const overUdp = yield* rawPort(guest.port)
      const udp = yield* overUdp.sleep
      yield* Effect.forkScoped(
        eventually(overUdp.app, (app) => app?.held === 1).pipe(Effect.andThen(udp.wake))
      )
      const dig = ["@127.0.0.1", "name.test", "A", "+short", "+time=20", "+tries=1"]
      const first = yield* run("dig", [...dig, "-p", String(overUdp.hostPort)])
      assert.strictEqual(first.stdout.trim(), "192.0.2.7", first.stderr)
      assert.strictEqual(
        (yield* run("dig", [...dig, "-p", String(overUdp.hostPort)])).stdout.trim(),
        "192.0.2.7"
      )

      const tcpGuest = yield* listenRaw((talk) => {
        talk.socket.on("data", () => {
          const message = Buffer.from(talk.text, "latin1")
          if (message.length < 2 || message.length < 2 + message.readUInt16BE(0)) return
          const answer = dnsAnswer(Buffer.from(talk.take(), "latin1").subarray(2))
          const length = Buffer.alloc(2)
          length.writeUInt16BE(answer.length)
          talk.write(Buffer.concat([length, answer]))
        })
      })
      const overTcp = yield* rawPort(tcpGuest.port)
      const tcp = yield* overTcp.sleep
      yield* Effect.forkScoped(
        eventually(overTcp.app, (app) => app?.held === 1).pipe(Effect.andThen(tcp.wake))
      )
      const third = yield* run("dig", [...dig, "+tcp", "-p", String(overTcp.hostPort)])
      assert.strictEqual(third.stdout.trim(), "192.0.2.7", third.stderr)
    })
  )

  /** Dropbear's server, at which this user may log in as `tester`; gives its port. */
  const sshServer = (folder: string) =>
    Effect.gen(function* () {
      const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0]
      const at = (name: string) => join(folder, name)
      mkdirSync(at("home/.ssh"), { recursive: true, mode: 0o700 })
      chmodSync(at("home"), 0o700)
      for (const [command, args] of [
        ["dropbearkey", ["-t", "ed25519", "-f", at("host")]],
        ["ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", at("id")]]
      ] as const) {
        assert.strictEqual((yield* run(command, args)).code, 0)
      }
      writeFileSync(at("home/.ssh/authorized_keys"), readFileSync(at("id.pub")), { mode: 0o600 })
      writeFileSync(at("passwd"), `tester:x:${uid}:${gid}:tester:${at("home")}:/bin/sh\n`)
      writeFileSync(at("group"), `tester:x:${gid}:\n`)
      const port = yield* freePort
      yield* Effect.acquireRelease(
        Effect.sync(() =>
          spawn("dropbear", ["-FEsjkm", "-r", at("host"), "-P", at("pid"), "-p", `127.0.0.1:${port}`], {
            stdio: "ignore",
            env: {
              ...process.env,
              LD_PRELOAD: "libnss_wrapper.so",
              NSS_WRAPPER_PASSWD: at("passwd"),
              NSS_WRAPPER_GROUP: at("group")
            }
          })
        ),
        (child) => Effect.sync(() => child.kill("SIGKILL"))
      )
      return port
    })

  withTool("dropbear")("carry ssh to an app that sleeps and is slow to open the port, bytes and all", () =>
    Effect.gen(function* () {
      const path = yield* folder
      const guestPort = yield* sshServer(path)
      const raw = yield* rawPort(guestPort, { settle: 30_000 })
      const sleep = yield* raw.sleep
      yield* Effect.forkScoped(eventually(raw.app, (app) => app?.held === 1).pipe(Effect.andThen(sleep.wake)))
      const options = ["IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]
      const ssh = [
        ...["-F", "none", "-q", "-p", String(raw.hostPort), "-i", join(path, "id")],
        ...options.flatMap((option) => ["-o", option]),
        "tester@127.0.0.1"
      ]
      const bytes = Buffer.alloc(3_000_000, "nibrunner")
      const first = yield* run("ssh", [...ssh, "sha256sum; exit 7"], bytes)
      assert.strictEqual(first.stdout.split(" ")[0], sha256(bytes), first.stderr)
      assert.strictEqual(first.code, 7)
      const second = yield* run("ssh", [...ssh, "yes | head -c 2000000"])
      assert.lengthOf(second.stdout, 2_000_000)
      assert.strictEqual(sleep.asked.count, 1)
      yield* eventually(raw.app, (app) => app?.open === 0)
      assert.include((yield* raw.app)?.tcp, { relayed: 2, notTaken: 0 })
    })
  )
})
