"""How long does an actor wait for `insert` of one step?"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bench.contender import Absent, Contender, Trial
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.limits.dict_copy import dict_copy
from bench.limits.empty_call import empty_call
from bench.limits.memcpy import memcpy_fresh, memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.peers.process import peers
from bench.peers.task import Task
from bench.size import Size
from bench.steps import LAYOUTS
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

ITEMS = 1_000_000  # of 400 B; as many bytes of the larger ones


@contextlib.contextmanager
def contenders(size: Size, sampler: str, layout: str) -> Iterator[Sequence[Contender | Trial | Absent]]:
    rng = np.random.default_rng(1)
    made = LAYOUTS[layout]
    items = made.items(min(ITEMS, size.items))
    steps = made.separate(made.num_steps, rng)
    packed = rng.integers(0, 256, (made.num_steps, made.step_bytes), np.uint8)
    task = Task("insert", items, layout, exponent=0.0 if sampler == "uniform" else EXPONENT)
    with full_table(SAMPLERS[sampler], items, rng, made) as table, peers(task) as others:
        if sampler == "uniform":
            ours = Contender("insert(step)", "ours", inserts(table, steps))
        else:
            priorities = (1 - rng.random(made.num_steps)).tolist()
            ours = Contender("insert(step, priority)", "ours", inserts_with_priorities(table, steps, priorities))
        yield [
            ours,
            robust_lock(),
            empty_call(),
            memcpy_warm(packed, items),
            memcpy_fresh(packed),
            dict_copy(steps, made.column_bytes, items),
            *others,
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
        f"insert_step_{sampler}_{layout}",
        f"How long does one insert of a five-column dict of {LAYOUTS[layout].name} take, into a {sampler} table that "
        f"is full{how}?",
        functools.partial(contenders, sampler=sampler, layout=layout),
        "W1",
        in_quick=layout != "4kB",
    )
    for sampler, layout, how in (
        *(("uniform", layout, "") for layout in LAYOUTS),
        ("prioritised", "400B", ", each with a priority of its own"),
    )
)
