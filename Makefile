# A fresh machine needs python3 (3.10 or later, with venv and headers), a C++20 compiler and make; all else comes from
# PyPI into .venv. Every target sets up what it needs, and does again only what changed.
#
#   make demo      four actors, one learner, CartPole (make demo DEMO_ARGS="--actors 8 --seed 1")
#   make test      lint, types, native tests, Python tests, with fixed seeds (TEST_ARGS="-k rate_limiter", WORKERS=0: one
#                  after the other). Goes on after a part that failed, and says at the end which did
#   make test-long  what takes long or has a fresh seed, which is printed: native tests, sanitizers, the wheel, Python
#                  tests that are long or random (about half an hour on two cores)
#   make check     ruff, clang-format, mypy --strict, stubtest: a part of make test
#   make tidy      clang-tidy over the core and the binding (two minutes of one processor)
#   make native    the native tests alone, as make test-long runs them (make native-quick: as make test does)
#   make python    the Python tests alone, as make test runs them (make python-long: as make test-long does)
#   make sanitize  the native tests under ThreadSanitizer and AddressSanitizer (SANITIZE=full: the long way)
#   make wheel     a wheel, repaired by auditwheel, tried in a clean environment without a compiler
#   make sb3-tests  Stable-Baselines3's own tests of replay buffers with ours in their places, for minutes (SB3_TESTS="test_run")
#   make bench     the quick benchmarks (BENCH_ARGS)
#   make bench-peers  the peers that the benchmarks measure us beside, an environment each (1 to 2 GB)
#   make chart     docs/images/results.svg, the chart in README.md, from bench/RESULTS.json
#   make page-picture  docs/images/page.png, the web page of a daemon at work (needs a Chromium)
#   make soak      a storm of deaths (SOAK_ARGS="--minutes 60 --seed 7")
#   make stubs     shmreplay/_core.pyi, from the built binding
#   make layers    the picture of the layers in ARCHITECTURE.md, from all includes and imports
#   make cli-page  docs/cli.md, from what both programs take on the command line
#   make format    all Python files by ruff, all C++ files by clang-format
#   make clean     removes build/ and dist/ (make distclean: .venv as well)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= $(shell nproc)
DEMO_ARGS ?=
TEST_ARGS ?=
# Each worker of pytest mounts a /dev/shm of its own; where that is not allowed, there is none beside pytest itself. More
# of them than processors: tests of processes wait half of their time.
WORKERS ?= $(shell unshare --mount mount -t tmpfs tmpfs /dev/shm 2>/dev/null && echo $$(($(JOBS) < 4 ? 2 * $(JOBS) : 8)) || echo 0)
BENCH_ARGS ?= --quick
SOAK_ARGS ?= --minutes 5
SANITIZE ?= quick
SB3_TESTS ?=
# Of make test: with fixed seeds a failure is the change's that brought it.
FIXED_SEED ?= 20260701
# Of one release, so that a mirror's build for processors serves; nothing here needs the GPU in it.
TORCH ?= torch==2.13.0
# Installed after torch, which it would bring in another build. Its own tests come from the sdist of this release.
SB3 ?= stable-baselines3==2.9.2 sb3-contrib==2.9.2
MINARI ?= minari[hdf5]==0.5.4

BIN := .venv/bin
STAMP := .venv/stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
# the source folder must never stand in for the installed package
export PYTHONSAFEPATH := 1
# Where a machine forbids Python to keep bytecode, each of the thousand processes of the tests would compile all files.
unexport PYTHONDONTWRITEBYTECODE
# cmake and ninja are those of .venv, for this file, for scripts and for scikit-build-core
export PATH := $(CURDIR)/$(BIN):$(PATH)

CORE := $(wildcard shmreplay/core/*/*.cc shmreplay/core/*/*.h shmreplay/binding/*) shmreplay/_core.cc CMakeLists.txt

# Every C++ file of the repository.
CPP = $(shell find shmreplay tests bench scripts -name "*.h" -o -name "*.cc")

.PHONY: help demo test test-long ready check tidy native native-quick python python-long sanitize wheel bench bench-peers \
  chart page-picture sb3-tests soak stubs layers cli-page format clean distclean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(STAMP)/installed
	@$(BIN)/shmreplay demo $(DEMO_ARGS)

test: ready
	@scripts/parts.sh "check native-quick" python

test-long: ready
	@rm -f dist/shmreplay-*.whl
	@SHMREPLAY_WHEEL=$(CURDIR)/dist scripts/parts.sh "native sanitize wheel" python-long

# What both need. The downloads and the compiler side by side: one waits for the network, the other for the processor.
ready: $(STAMP)/run
	@$(MAKE) -j2 $(STAMP)/dev $(STAMP)/installed

# As in pyproject.toml, for tests that may take a minute each where nothing else runs.
LONG_TIMEOUTS := --timeout 1200 -o faulthandler_timeout=1500
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

python: $(STAMP)/installed $(STAMP)/dev
	@echo "== python tests"
	@SHMREPLAY_TEST_SEED=$(FIXED_SEED) HYPOTHESIS_PROFILE=fixed $(PYTEST) -m "not long" $(TEST_ARGS)

python-long: $(STAMP)/installed $(STAMP)/dev
	@echo "== python tests: those that a fresh seed, more rounds or more time make worth another run"
	@SHMREPLAY_LONG=1 HYPOTHESIS_PROFILE=long $(PYTEST) $(LONG_TIMEOUTS) -m hunt $(TEST_ARGS)

check: $(STAMP)/installed $(STAMP)/dev
	@echo "== ruff, clang-format, mypy, stubtest"
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/clang-format --dry-run -Werror $(CPP)
	@$(BIN)/python scripts/typing_tree.py build/typing
	@$(BIN)/python -m mypy --no-error-summary $$(for d in build/typing/shmreplay bench tests scripts examples; do [ ! -d $$d ] || echo $$d; done)
	@$(BIN)/python scripts/stubtest.py

tidy: $(STAMP)/dev
	@echo "== clang-tidy"
	@scripts/tidy.sh build/tidy

native-quick: $(STAMP)/run
	@echo "== native tests"
	@SHMREPLAY_SEED=$(FIXED_SEED) scripts/native.sh build/native-quick -DSHMREPLAY_QUICK=ON

# Sets and prints the seed of the native tests: the caller's, or a fresh one.
FRESH_SEED = export SHMREPLAY_SEED=$${SHMREPLAY_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
             echo "SHMREPLAY_SEED=$$SHMREPLAY_SEED"

native: $(STAMP)/run
	@echo "== native tests, for longer"
	@$(FRESH_SEED); SHMREPLAY_LONG=1 scripts/native.sh build/native

sanitize: $(STAMP)/run
	@$(FRESH_SEED); scripts/sanitize.sh thread $(SANITIZE)
	@$(FRESH_SEED); scripts/sanitize.sh address $(SANITIZE)

wheel: $(STAMP)/dev
	@scripts/wheel.sh dist

sb3-tests: $(STAMP)/installed $(STAMP)/dev
	@$(BIN)/python scripts/sb3_tests.py build/sb3 $(SB3_TESTS)

bench: $(STAMP)/installed
	@env -u PYTHONSAFEPATH $(BIN)/python -m bench $(BENCH_ARGS)

bench-peers: $(STAMP)/installed
	@env -u PYTHONSAFEPATH $(BIN)/python -m bench.peers.install

chart: $(STAMP)/installed
	@env -u PYTHONSAFEPATH $(BIN)/python -m bench.chart bench/RESULTS.json > docs/images/results.svg

page-picture: $(STAMP)/installed $(STAMP)/dev
	@env -u PYTHONSAFEPATH $(BIN)/python -m scripts.page_picture

soak: $(STAMP)/installed $(STAMP)/dev
	@env -u PYTHONSAFEPATH $(BIN)/python -m tests.soak $(SOAK_ARGS)

stubs: $(STAMP)/installed $(STAMP)/dev
	@$(BIN)/python scripts/stubs.py
	@$(BIN)/ruff check -q --fix shmreplay/_core.pyi

layers: | $(BIN)/python
	@$(BIN)/python scripts/layers.py --write

cli-page: $(STAMP)/installed
	@$(BIN)/python scripts/cli_page.py

format: $(STAMP)/dev
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .
	@$(BIN)/clang-format -i $(CPP)

clean:
	rm -rf build dist

distclean: clean
	rm -rf .venv

# --- the virtual environment -----------------------------------------------------------------------------------------

$(BIN)/python:
	@scripts/check_machine.sh "$(PYTHON)"
	@echo "== creating .venv"
	@"$(PYTHON)" -m venv .venv

# What building and running need; then what testing and releasing need. Both again only when pyproject.toml changes.
$(STAMP)/run: pyproject.toml scripts/requirements.py | $(BIN)/python
	@echo "== installing what the build needs"
	@mkdir -p $(STAMP)
	@$(BIN)/python scripts/requirements.py build runtime demo > $(STAMP)/run.txt
	@$(PIP) install -r $(STAMP)/run.txt
	@touch $@

$(STAMP)/dev: $(STAMP)/run
	@echo "== installing what the tests need"
	@$(BIN)/python scripts/requirements.py test dev > $(STAMP)/dev.txt
	@$(PIP) install -r $(STAMP)/dev.txt
	@$(PIP) install $(TORCH)
	@$(PIP) install $(SB3)
	@$(PIP) install jax "$(MINARI)"
	@touch $@

# An editable install: Python files are used where they lie, the core is rebuilt here when one of its files changes.
$(STAMP)/installed: $(STAMP)/run $(CORE)
	@echo "== building the core (one to three minutes, more on a busy machine)"
	@scripts/patiently.sh 15 $(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
