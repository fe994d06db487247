#!/usr/bin/env bash
# build.sh <preset> <target> <jobs>: configures build/<preset> and builds a target. Quiet when there is nothing to do.
set -euo pipefail
preset=$1 target=$2 jobs=$3
log=build/$preset.configure.log
mkdir -p build
if ! cmake --preset "$preset" -DPython_EXECUTABLE="$PWD/.venv/bin/python" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
cmake --build --preset "$preset" --target "$target" -j "$jobs"
