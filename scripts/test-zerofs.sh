#!/bin/sh
# Runs the tests of volumes on ZeroFS against ZeroFS itself: the program that ZEROFS_BINARY names, or the one that
# crates.io has, built once (some ten minutes) into .cache/zerofs.
set -eu
cd "$(dirname "$0")/.."
version=0.19.1
folder=$PWD/.cache/zerofs/$version
if [ -z "${ZEROFS_BINARY:-}" ]; then
  ZEROFS_BINARY=$folder/bin/zerofs
  if [ ! -x "$ZEROFS_BINARY" ]; then
    command -v cargo >/dev/null || {
      echo "test:zerofs: ZEROFS_BINARY names no program, and there is no cargo to build one with" >&2
      exit 1
    }
    # the profile without link-time optimisation: it is tried here, not measured
    CARGO_TARGET_DIR=$folder/target cargo install zerofs --version "$version" --locked --profile ci --root "$folder"
    rm -rf "$folder/target"
  fi
fi
export ZEROFS_BINARY
"$ZEROFS_BINARY" --version
exec sh scripts/test.sh test/unit/zerofs test/host/zerofs "$@"
