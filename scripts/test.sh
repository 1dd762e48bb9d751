#!/bin/sh
# Runs the tests. As root they run in a network namespace of their own, loopback only: no packet leaves it, and the
# fixed ports of a host (21000 and up, 127.201.x.y) are free in it whatever else runs on this machine.
set -eu
cd "$(dirname "$0")/.."
vitest=node_modules/.bin/vitest
if [ "$(id -u)" -eq 0 ]; then
  exec unshare --net -- sh -c 'ip link set lo up && exec "$@"' sh "$vitest" run "$@"
fi
exec "$vitest" run "$@"
