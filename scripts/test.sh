#!/bin/sh
# Runs the tests. As root they run in network namespaces of their own, loopback only: no packet leaves them, and the
# fixed ports of a host (21000 and up, 127.201.x.y) are free in them whatever else runs on this machine. So when all are
# asked for, those on real microVMs run in two halves side by side; what they print comes one after the other.
#
# NIBRUNNER_REPORTS names a folder for vitest's JSON reports of a run of all tests.
set -eu
cd "$(dirname "$0")/.."
vitest=node_modules/.bin/vitest
[ "$(id -u)" -eq 0 ] || exec "$vitest" run "$@"

apart() {
  unshare --net -- sh -c 'ip link set lo up && exec "$@"' sh "$vitest" run "$@"
}
if [ $# -gt 0 ]; then
  apart "$@"
  exit
fi

part() {
  name=$1
  shift
  if [ -n "${NIBRUNNER_REPORTS-}" ]; then
    set -- "$@" --reporter=default --reporter=json "--outputFile.json=$NIBRUNNER_REPORTS/$name.json"
  fi
  apart "$@"
}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
wrong=0
part host-1 --project host --shard 1/2 >"$said" 2>&1 &
other=$!
# Whoever ends this one ends both.
trap 'kill "$other" 2>/dev/null; exit 130' INT TERM
part host-2 --project host --shard 2/2 || wrong=1
wait "$other" || wrong=1
cat "$said"
part unit --project unit || wrong=1
exit "$wrong"
