#!/usr/bin/env bash
# Says what a build needs and this machine lacks, before pip or CMake say it in their own words.
# usage: check_machine.sh PYTHON
set -euo pipefail

python=$1
missing=0
lacks() {
  printf 'shmreplay cannot be built here: %s\n' "$1" >&2
  missing=1
}

if ! command -v "$python" >/dev/null; then
  lacks "there is no '$python'; install Python 3.10 or later, or name one: make PYTHON=/path/to/python3"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  lacks "'$python' is $("$python" -V 2>&1); Python 3.10 or later is needed: make PYTHON=/path/to/python3"
else
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    lacks "'$python' has no venv with pip; install it (Debian, Ubuntu: apt-get install python3-venv)"
  "$python" -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    lacks "'$python' has no Python.h; install its headers (Debian, Ubuntu: apt-get install python3-dev)"
fi

cxx=${CXX:-c++}
if ! command -v "$cxx" >/dev/null; then
  lacks "there is no C++ compiler '$cxx'; install one (Debian, Ubuntu: apt-get install g++), or set CXX"
elif ! echo 'int main() {}' | "$cxx" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
  lacks "'$cxx' does not know C++20; GCC 11, Clang 14 or later are needed: set CXX"
fi
exit "$missing"
