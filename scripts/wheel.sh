#!/usr/bin/env bash
# Builds a wheel as a release does (isolated, from the requirements pyproject.toml states), lets auditwheel say on which
# systems it runs, and tries it where there is no compiler.
# usage: wheel.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
python=.venv/bin/python
raw=build/raw-wheel
rm -rf "$raw"
mkdir -p "$folder"

echo "== building the wheel (two to five minutes); the log is build/wheel.log"
log=build/wheel.log
mkdir -p build
logged() {
  scripts/patiently.sh 15 sh -c '"$@" >>"$0" 2>&1' "$log" "$@" || {
    cat "$log" >&2
    exit 1
  }
}
: >"$log"
# Its own build folder: an isolated build has other paths to cmake and nanobind, and would spoil the editable one.
logged "$python" -m build --wheel --outdir "$raw" -C build-dir=build/wheel
rm -f "$folder"/shmreplay-*.whl
logged "$python" -m auditwheel repair --wheel-dir "$folder" "$raw"/shmreplay-*.whl
wheel=$(ls "$folder"/shmreplay-*.whl)
echo "== trying $wheel"
scripts/patiently.sh 15 "$python" scripts/try_wheel.py "$wheel" README.md
