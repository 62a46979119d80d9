#!/usr/bin/env bash
# Runs a command that may be silent for minutes, and says now and then that it is still at work.
# usage: patiently.sh SECONDS COMMAND [ARGUMENT...]
set -euo pipefail

every=$1
shift
exec {never}<> <(:)  # a pipe that nothing comes out of: read -t on it is a sleep without a process that outlives us
{
  while ! read -r -t "$every" -u "$never"; do
    printf '   still at work after %d s\n' "$SECONDS"
  done
} &
trap 'kill $!' EXIT
"$@"
