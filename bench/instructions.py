"""How many instructions does an item take? `python -m bench.instructions [--calls insert,update_priorities]`.

Counts with valgrind's callgrind, which must be installed. Other load on the machine hardly changes the count. Each call
is made ROUNDS times in its own process; the count of a process with FEW rounds is subtracted. The loop over the list of
steps counts, too. valgrind does not know AVX-512: it counts the AVX2 version of such code.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench.full_table import SAMPLERS, full_table
from bench.steps import SMALL
from shmreplay.clients.tables.table import TableHandle

ITEMS = 4096
BATCH = 256
ROUNDS = 1000  # each is one call, or a batch of calls
FEW = 10  # rounds that warm up

Round = Callable[[], object]


def insert(table: TableHandle, rng: np.random.Generator) -> Round:
    steps = SMALL.separate(BATCH, rng)

    def all_steps() -> None:
        for step in steps:
            table.insert(step)

    return all_steps


def append_item(table: TableHandle, rng: np.random.Generator) -> Round:
    steps, writer = SMALL.separate(BATCH, rng), table.writer(history=5)

    def all_steps() -> None:
        for step in steps:
            writer.append(step)
            writer.create_item(1)

    return all_steps


def insert_batch(table: TableHandle, rng: np.random.Generator) -> Round:
    rows, priorities = SMALL.stacked(BATCH, rng), 1 - rng.random(BATCH)
    return lambda: table.insert_batch(rows, priorities)


def insert_dicts(table: TableHandle, rng: np.random.Generator) -> Round:
    steps = SMALL.separate(BATCH, rng)
    return lambda: table.insert_batch(steps)


def sample(table: TableHandle, rng: np.random.Generator) -> Round:
    return lambda: table.sample(BATCH)


def update_priorities(table: TableHandle, rng: np.random.Generator) -> Round:
    keys, priorities = table.sample(BATCH).keys, 1 - rng.random(BATCH)
    return lambda: table.update_priorities(keys, priorities)


# By name: the table's sampler, and a function that makes a round of BATCH items.
CALLS: dict[str, tuple[str, Callable[[TableHandle, np.random.Generator], Round]]] = {
    "insert": ("uniform", insert),
    "append + create_item": ("uniform", append_item),
    "insert_batch uniform": ("uniform", insert_batch),
    "insert_batch prioritised": ("prioritised", insert_batch),
    "insert_batch of dicts": ("uniform", insert_dicts),
    "sample uniform": ("uniform", sample),
    "sample prioritised": ("prioritised", sample),
    "update_priorities": ("prioritised", update_priorities),
}


def make(name: str, rounds: int) -> None:
    """The counted work: this many rounds of the call on a full table."""
    sampler, call = CALLS[name]
    rng = np.random.default_rng(1)
    with full_table(SAMPLERS[sampler], ITEMS, rng) as table:
        round_ = call(table, rng)
        for _ in range(rounds):
            round_()


def count(name: str, rounds: int) -> int:
    """Instructions of a process that makes this many rounds."""
    counter = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*counter, sys.executable, "-m", "bench.instructions", "--make", name, str(rounds)],
        cwd=Path(__file__).parents[1],
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stderr=subprocess.PIPE,
    )
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or collected is None:
        raise RuntimeError(f"valgrind: {done.stderr.strip()[-2000:]}")
    return int(collected[1])


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if options.make:
        make(options.make[0], int(options.make[1]))
        return 0
    if shutil.which("valgrind") is None:
        sys.exit("bench.instructions: valgrind is not in PATH; install it (apt install valgrind)")
    names = options.calls.split(",") if options.calls else list(CALLS)
    if unknown := [name for name in names if name not in CALLS]:
        sys.exit(f"bench.instructions: --calls has {unknown[0]!r}; expected some of {', '.join(CALLS)}")
    found: dict[str, float] = {}
    for name in names:
        found[name] = (count(name, FEW + ROUNDS) - count(name, FEW)) / ROUNDS / BATCH
        print(f"{name:28}{found[name]:8,.0f}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description="Instructions an item, by call.")
    parser.add_argument("--calls", metavar="A,B", help="only these")
    parser.add_argument("--json", metavar="FILE", help="where the numbers go too")
    parser.add_argument("--make", nargs=2, metavar=("CALL", "ROUNDS"), help=argparse.SUPPRESS)  # the counted process
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
