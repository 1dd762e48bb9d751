#!/bin/sh
# Format, lint and types of the whole project: all three are run, whatever the first of them finds.
set -u
cd "$(dirname "$0")/.." || exit 1
failed=""

node_modules/.bin/biome ci . || failed="$failed format-and-lint"
node_modules/.bin/tsc -p . || failed="$failed types"
shellcheck bin/nibrunnerd scripts/*.sh test/host/systemd/*.sh .ci/run || failed="$failed shell"

[ -z "$failed" ] && exit 0
echo "check failed:$failed" >&2
exit 1
