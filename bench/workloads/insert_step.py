"""How long does an actor wait for `insert` of one step?"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.contender import Contender
from bench.full_table import SAMPLERS, full_table
from bench.limits.dict_copy import dict_copy
from bench.limits.memcpy import memcpy_fresh, memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.size import Size
from bench.steps import COLUMN_BYTES, NUM_STEPS, STEP_BYTES, separate
from bench.workload import Workload
from shmreplay.clients.table import TableHandle

ORIENTATION_NS = 2000.0


@contextlib.contextmanager
def contenders(size: Size, sampler: str) -> Iterator[list[Contender]]:
    rng = np.random.default_rng(1)
    steps = separate(NUM_STEPS, rng)
    packed = rng.integers(0, 256, (NUM_STEPS, STEP_BYTES), np.uint8)
    with full_table(SAMPLERS[sampler], size.items, rng) as table:
        if sampler == "uniform":
            ours = Contender("insert(step)", "ours", inserts(table, steps))
        else:
            priorities = (1 - rng.random(NUM_STEPS)).tolist()
            ours = Contender("insert(step, priority)", "ours", inserts_with_priorities(table, steps, priorities))
        yield [
            ours,
            robust_lock(),
            memcpy_warm(packed, size.items),
            memcpy_fresh(packed),
            dict_copy(steps, COLUMN_BYTES, size.items),
        ]


def inserts(table: TableHandle, steps: list[dict[str, Any]]) -> Callable[[int], int]:
    endless = itertools.cycle(steps)

    def run(n: int) -> int:
        insert = table.insert
        start = time.monotonic_ns()
        for step in itertools.islice(endless, n):
            insert(step)
        return time.monotonic_ns() - start

    return run


def inserts_with_priorities(
    table: TableHandle, steps: list[dict[str, Any]], priorities: list[float]
) -> Callable[[int], int]:
    endless = itertools.cycle(zip(steps, priorities, strict=True))

    def run(n: int) -> int:
        insert = table.insert
        start = time.monotonic_ns()
        for step, priority in itertools.islice(endless, n):
            insert(step, priority)
        return time.monotonic_ns() - start

    return run


WORKLOADS = tuple(
    Workload(
        f"insert_step_{sampler}",
        f"How long does one insert of a five-column dict of {STEP_BYTES} bytes take, into a {sampler} table that is "
        f"full ({{items}} items){how}?",
        functools.partial(contenders, sampler=sampler),
        orientation_ns=ORIENTATION_NS,
    )
    for sampler, how in (("uniform", ""), ("prioritised", ", each with a priority of its own"))
)
