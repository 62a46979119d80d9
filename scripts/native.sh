#!/usr/bin/env bash
# Builds the native tests and runs them, saying much only when something is wrong.
# usage: native.sh BUILD_FOLDER [CMAKE_OPTION...] [-- CTEST_OPTION...]
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
shift
configure=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  configure+=("$1")
  shift
done
[ $# -eq 0 ] || shift
[ -d .venv/bin ] && PATH=$PWD/.venv/bin:$PATH   # cmake and ninja, where `make` has put them

quietly() {
  local log=$folder/last.log
  "$@" >"$log" 2>&1 || {
    cat "$log"
    exit 1
  }
}
mkdir -p "$folder"
quietly cmake -S . -B "$folder" -G Ninja -DSHMREPLAY_NATIVE_TESTS=ON "${configure[@]}"
quietly cmake --build "$folder" -- --quiet
quietly ctest --test-dir "$folder" --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
grep -E '^[0-9]+% tests passed|^Total Test time' "$folder/last.log"
