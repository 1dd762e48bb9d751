// @ts-check
/**
 * The Debian packages that the project needs, each with its reason: what the set-up installs. `command` shows
 * that a package is there where dpkg is not; `for` says who needs it: a host (`run`), what is compiled and built
 * here (`build`), `check`, `test`, `bench`. With `unless` it is not needed where that command is, from wherever.
 *
 * @typedef {"run" | "build" | "check" | "test" | "bench"} Purpose
 * @typedef {{ name: string, command: string, for: Purpose, why: string, unless?: string }} DebianPackage
 */

/** @type {ReadonlyArray<DebianPackage>} */
export const packages = [
  { name: "qemu-system-x86", command: "qemu-system-x86_64", for: "run", why: "runs the microVMs" },
  { name: "e2fsprogs", command: "mke2fs", for: "run", why: "formats volumes" },
  { name: "squashfs-tools", command: "mksquashfs", for: "run", why: "packs programs into layers" },
  {
    name: "fakeroot",
    command: "fakeroot",
    for: "run",
    why: "gives volumes their owners where the daemon is not root"
  },
  { name: "xz-utils", command: "xz", for: "run", why: "decompresses initial contents in xz" },
  { name: "iproute2", command: "ip", for: "run", why: "makes the taps of guests" },
  { name: "qemu-utils", command: "qemu-img", for: "run", why: "takes new volumes to ZeroFS" },
  { name: "nftables", command: "nft", for: "run", why: "keeps guests apart" },
  { name: "conntrack", command: "conntrack", for: "run", why: "ends what is open to a guest" },
  { name: "pigz", command: "pigz", for: "run", why: "compresses exports" },

  { name: "mmdebstrap", command: "mmdebstrap", for: "build", why: "gathers the guest's Debian base" },
  { name: "gcc", command: "gcc", for: "build", why: "compiles PID 1 and the example" },
  { name: "musl-tools", command: "musl-gcc", for: "build", why: "links them statically" },
  {
    name: "libext2fs-dev",
    command: "gcc",
    for: "build",
    why: "reads volumes for exports"
  },
  {
    name: "comerr-dev",
    command: "gcc",
    for: "build",
    why: "is what libext2fs says its errors with"
  },

  { name: "nbdkit", command: "nbdkit", for: "test", why: "serves the volumes of ZeroFS's stand-in" },
  { name: "libnbd-bin", command: "nbdinfo", for: "test", why: "an NBD client that is not ours" },

  {
    name: "systemd",
    command: "systemd-analyze",
    for: "test",
    why: "reads the units that install writes, and tells that the daemon serves"
  },

  { name: "shellcheck", command: "shellcheck", for: "check", why: "lints the shell scripts" },

  { name: "clang", command: "clang", for: "test", why: "compiles PID 1 with sanitizers" },
  {
    name: "libclang-rt-14-dev",
    command: "clang",
    for: "test",
    why: "the sanitizers' run-time library"
  },
  { name: "cpio", command: "cpio", for: "test", why: "reads back the initramfs that is packed here" },
  {
    name: "curl",
    command: "curl",
    for: "bench",
    why: "a client of the proxy and of S3 that is not ours, in tests too"
  },
  {
    name: "openssl",
    command: "openssl",
    for: "bench",
    why: "makes certificates, and speaks TLS to the proxy"
  },
  { name: "bind9-dnsutils", command: "dig", for: "test", why: "speaks UDP and TCP through a raw port" },
  { name: "openssh-client", command: "ssh", for: "test", why: "speaks SSH through a raw port" },
  {
    name: "dropbear-bin",
    command: "dropbear",
    for: "test",
    why: "is the SSH server of an app; starts by itself nowhere"
  },
  { name: "libnss-wrapper", command: "dropbear", for: "test", why: "gives that server a user of the test's" },
  { name: "apache2-utils", command: "ab", for: "test", why: "speaks HTTP/1.0 to the proxy, many at a time" },
  { name: "strace", command: "strace", for: "test", why: "shows that data is on the disk before it counts" },
  {
    name: "golang-go",
    command: "go",
    unless: "go",
    for: "bench",
    why: "makes the S3 server that stores are tried with, in tests too"
  },
  { name: "procps", command: "ps", for: "test", why: "tells a process's session" },
  { name: "nix-bin", command: "nix-instantiate", for: "test", why: "checks the syntax of flake.nix" },
  { name: "prometheus", command: "promtool", for: "test", why: "reads the metrics page as Prometheus does" },

  { name: "nginx-light", command: "nginx", for: "bench", why: "what the proxy is measured against" },
  { name: "wrk", command: "wrk", for: "bench", why: "makes the load" },
  {
    name: "nghttp2-client",
    command: "h2load",
    for: "bench",
    why: "makes the load of HTTP/2; a client in tests too"
  }
]

/**
 * What each task of package.json needs.
 *
 * @type {Readonly<Record<string, ReadonlyArray<Purpose>>>}
 */
export const tasks = {
  code: [],
  demo: ["run", "build"],
  image: ["run", "build"],
  check: ["check"],
  test: ["run", "build", "check", "test", "bench"],
  bench: ["run", "build", "bench"]
}
