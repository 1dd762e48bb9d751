#!/bin/sh
# Runs the tests. As root they run in network namespaces of their own, loopback only: no packet leaves them, and the
# fixed ports of a host (21000 and up, 127.201.x.y) are free in them whatever else runs on this machine. So when all are
# asked for, those on real microVMs run in two halves, and the others beside them; what they print comes one after the other.
#
# NIBRUNNER_REPORTS names a folder for vitest's JSON reports of a run of all tests.
set -eu
cd "$(dirname "$0")/.."
vitest=node_modules/.bin/vitest
[ "$(id -u)" -eq 0 ] || exec "$vitest" run "$@"

apart() {
  unshare --net -- sh -c 'ip link set lo up && exec "$@"' sh nice -n "${niceness-0}" "$vitest" run "$@"
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
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
wrong=0
part host-1 --project host --shard 1/2 >"$folder/host-1" 2>&1 &
first=$!
# The others wait for guests most of the time: these take what is left of the processors.
niceness=5 part unit --project unit >"$folder/unit" 2>&1 &
unit=$!
# Whoever ends this one ends them all.
trap 'kill "$first" "$unit" 2>/dev/null; exit 130' INT TERM
part host-2 --project host --shard 2/2 || wrong=1
wait "$first" || wrong=1
wait "$unit" || wrong=1
cat "$folder/host-1" "$folder/unit"
exit "$wrong"
