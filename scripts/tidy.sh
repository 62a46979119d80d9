#!/usr/bin/env bash
# Runs clang-tidy over the core and the binding; .clang-tidy has the checks. Nothing is built: it reads the sources.
# usage: tidy.sh BUILD_FOLDER [FILE...]   (default: every source of both)
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."

folder=$1
shift
PATH=$PWD/.venv/bin:$PATH   # cmake, ninja and clang-tidy, where `make` has put them
mkdir -p "$folder"
# A folder of its own: with tests in it, each source of the core would be listed and read twice.
cmake -S . -B "$folder" -G Ninja -DSHMREPLAY_MODULE=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" >"$folder/last.log" 2>&1 || {
  cat "$folder/last.log"
  exit 1
}
[ $# -gt 0 ] || set -- shmreplay/core/*/*.cc shmreplay/binding/*.cc shmreplay/_core.cc
# GCC's warnings are GCC's business.
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" \
  clang-tidy -p "$folder" --quiet --extra-arg=-Wno-unknown-warning-option 2> >(grep -v ' warnings\? .*generated' >&2)
