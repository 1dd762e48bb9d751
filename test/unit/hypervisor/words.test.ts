import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { kvmProblem, parseKhz } from "../../../layers/hypervisor/qemu/accelerator.ts"
import { makeTail, panicReason } from "../../../layers/hypervisor/qemu/console.ts"
import { explainDeath } from "../../../layers/hypervisor/qemu/explain.ts"

describe("the end of a console", () => {
  it("is the last bytes of what was added, however it came", () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 50 })),
        fc.integer({ min: 1, max: 60 }),
        (pieces, limit) => {
          const tail = makeTail(limit)
          for (const piece of pieces) tail.add(piece)
          const all = Buffer.concat(pieces)
          assert.strictEqual(tail.text(), new TextDecoder().decode(all.subarray(-limit)))
        }
      )
    )
  })

  it("tells the last panic in the kernel's words, without control characters", () => {
    assert.strictEqual(
      panicReason(
        "[    1.0] Kernel panic - not syncing: first\r\n[    2.5] Kernel panic - not syncing: Attempted to kill init!\x1b exitcode=0x00000b00\r\n[    2.6] CPU: 0 PID: 1\r\n"
      ),
      "the guest's kernel panicked: Attempted to kill init!\ufffd exitcode=0x00000b00"
    )
  })

  it("tells the remedy of a guest that had too little memory to boot", () => {
    assert.strictEqual(
      panicReason("[    1.4] Kernel panic - not syncing: System is deadlocked on memory\r\n"),
      "the guest's kernel panicked: System is deadlocked on memory; it needs more config.resources.memoryMib"
    )
  })

  it("tells of no panic where there was none", () => {
    assert.isUndefined(panicReason("[    1.0] reboot: Power down\n"))
    assert.isUndefined(panicReason(""))
  })
})

describe("why a QEMU ended", () => {
  it("is the last line that it wrote, without its own name and without warnings", () => {
    assert.strictEqual(
      explainDeath(
        "qemu-system-x86_64: could not open kernel file '/x': No such file or directory\nqemu-system-x86_64: warning: host lacks a feature\n\n",
        "ended with code 1"
      ),
      "QEMU ended with code 1: could not open kernel file '/x': No such file or directory"
    )
    assert.strictEqual(
      explainDeath("/usr/bin/qemu-system-x86_64: -m 1T: cannot allocate memory", "was ended by SIGABRT"),
      "QEMU was ended by SIGABRT: -m 1T: cannot allocate memory"
    )
  })

  it("is how it ended, where it said nothing", () => {
    assert.strictEqual(explainDeath("", "was ended by SIGKILL"), "QEMU was ended by SIGKILL and said nothing")
  })

  it("names the address and port that could not be forwarded", () => {
    const reason = explainDeath(
      "qemu-system-x86_64: -netdev user,id=net: Could not set up host forwarding rule 'tcp:127.201.0.2:3000-10.201.0.2:3000'\n",
      "ended with code 1"
    )
    assert.strictEqual(
      reason,
      "port 3000 of 127.201.0.2 on this host, where the guest's port 3000 is to be found, cannot be had: another program listens there"
    )
  })

  it("names a volume that is locked by another", () => {
    assert.strictEqual(
      explainDeath(
        'qemu-system-x86_64: -blockdev {}: Failed to get "write" lock\nIs another process using the image [/volumes/v1]?\n',
        "ended with code 1"
      ),
      "its volume /volumes/v1 is in use by another process"
    )
  })
})

describe("the accelerator", () => {
  const svm = "processor : 0\nflags\t\t: fpu vme svm sse\n"

  it("is KVM where its device opens and the processor has the instructions", () => {
    assert.isUndefined(kvmProblem({ cpuinfo: svm, device: true }))
    assert.isUndefined(kvmProblem({ cpuinfo: svm.replace("svm", "vmx"), device: true }))
  })

  it("is not KVM where the device is shut, or made for guests of another kind", () => {
    assert.include(kvmProblem({ cpuinfo: svm, device: false }), "/dev/kvm")
    assert.include(kvmProblem({ cpuinfo: svm.replace("svm", "svm_lock"), device: true }), "VMX")
  })

  it("takes nothing for the frequency of a TSC but a plausible number of kHz", () => {
    assert.strictEqual(parseKhz("2596128\n"), 2_596_128)
    for (const text of ["", "0", "99999", "-5", "2596128 extra", "1e7", "99999999999", "nonsense"]) {
      assert.isUndefined(parseKhz(text))
    }
  })
})
