#!/usr/bin/env bash
# Makes targets of the Makefile one after the other, goes on after one that failed, and says at the end which ones did.
# usage: parts.sh TARGETS...
#
# Each argument is one target, or several that run side by side ("check native"): then each one's output is shown when it
# has ended.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=()

make_side_by_side() {
  local target
  local -A pids=()
  echo "== side by side: $*"
  for target in "$@"; do
    "${MAKE:-make}" "$target" >"$logs/$target" 2>&1 &
    pids[$target]=$!
  done
  for target in "$@"; do
    wait "${pids[$target]}" || failed+=("$target")
    cat "$logs/$target"
  done
}

for argument in "$@"; do
  read -ra targets <<<"$argument"
  if [ ${#targets[@]} -gt 1 ]; then
    make_side_by_side "${targets[@]}"
  else
    "${MAKE:-make}" "$argument" || failed+=("$argument")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: make ${failed[*]}"
  exit 1
fi
