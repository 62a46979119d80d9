"""How long do many steps take that an actor has as separate dicts?"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bench.contender import Absent, Contender, Trial
from bench.full_table import SAMPLERS, full_table
from bench.limits.dict_copy import dict_copy
from bench.peers.process import peers
from bench.peers.task import Task
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

ITEMS = 100_000
BATCH = 256


@contextlib.contextmanager
def contenders(size: Size) -> Iterator[Sequence[Contender | Trial | Absent]]:
    rng = np.random.default_rng(7)
    items = min(ITEMS, size.items)
    steps = SMALL.separate(BATCH, rng)
    bare = dict_copy(steps, SMALL.column_bytes, items)
    with (
        full_table(SAMPLERS["uniform"], items, rng) as table,
        peers(Task("insert dicts", items, batch=BATCH)) as others,
    ):
        yield [
            Contender(f"insert_batch of a list of {BATCH}", "ours", list_inserts(table, steps)),
            Contender(f"insert(step), {BATCH} times", "ours", inserts(table, steps)),
            Contender(f"insert_batch of {BATCH} stacked by its caller", "ours", stacked_inserts(table, steps)),
            Contender(f"{bare.name}, {BATCH} times", "limit", lambda n: bare.run(n * BATCH)),
            *others,
        ]


def list_inserts(table: TableHandle, steps: list[dict[str, Any]]) -> Callable[[int], int]:
    def run(n: int) -> int:
        start = time.monotonic_ns()
        for _ in range(n):
            table.insert_batch(steps)
        return time.monotonic_ns() - start

    return run


def inserts(table: TableHandle, steps: list[dict[str, Any]]) -> Callable[[int], int]:
    def run(n: int) -> int:
        insert = table.insert
        start = time.monotonic_ns()
        for _ in range(n):
            for step in steps:
                insert(step)
        return time.monotonic_ns() - start

    return run


def stacked_inserts(table: TableHandle, steps: list[dict[str, Any]]) -> Callable[[int], int]:
    dtypes = {name: dtype for name, (_, dtype) in SMALL.columns.items()}

    def run(n: int) -> int:
        start = time.monotonic_ns()
        for _ in range(n):
            table.insert_batch({name: np.asarray([s[name] for s in steps], dtype) for name, dtype in dtypes.items()})
        return time.monotonic_ns() - start

    return run


WORKLOADS = (
    Workload(
        "insert_dicts",
        f"How long do {BATCH} steps of {SMALL.name} take that are separate dicts of Python's, into a uniform table "
        "that is full?",
        contenders,
        "W1",
        items_per_call=BATCH,
    ),
)
