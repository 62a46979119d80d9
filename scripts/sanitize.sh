#!/usr/bin/env bash
# Runs the native tests under a sanitizer.
# usage: sanitize.sh thread|address quick|full
#
# quick is what every commit gets. full repeats each test twenty times, stopping at the first failure: a race is found
# by the interleaving that shows it, so repetition is the only thing that makes the search longer. Both hunt races
# with threads as actors and learners on one mapping: ThreadSanitizer knows one process and one mapping of a page.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  echo "usage: sanitize.sh thread|address quick|full" >&2
  exit 2
}
[ $# -eq 2 ] || usage
kind=$1
length=$2
case $length in
  quick) repeat=() ;;
  full) repeat=(--repeat until-fail:20) ;;
  *) usage ;;
esac

launcher=()
case $kind in
  thread)
    options=(
      halt_on_error=1         # the first report is the cause, the next ones are its echo
      second_deadlock_stack=1 # a lock order is understood from both places that took it
      history_size=4          # remembers more past accesses: without it the other stack is often lost
      die_after_fork=0        # crash tests fork a child that dies holding the lock; the parent is what is checked
    )
    export TSAN_OPTIONS="${options[*]}"
    # ThreadSanitizer has fixed places for its shadow; a kernel that randomises more than 28 bits puts mappings there
    # ("unexpected memory mapping"). Without randomisation it starts everywhere.
    if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 32)" -gt 28 ]; then
      launcher=(setarch -R)
    fi
    ;;
  address)
    options=(
      halt_on_error=1              # as above
      detect_stack_use_after_return=1 # a pointer to a dead frame, kept in a waiter's list, is read long after
      strict_string_checks=1       # names come from a segment, where nothing promises a final zero
      detect_leaks=1               # the core allocates at attach only, and gives it all back at detach
    )
    export ASAN_OPTIONS="${options[*]}"
    export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1" # where, not only what; and then stop
    ;;
  *) usage ;;
esac

echo "== native tests, $kind sanitizer, $length"
"${launcher[@]}" scripts/native.sh "build/native-$kind" "-DSHMREPLAY_SANITIZE=$kind" -- "${repeat[@]}"
