"""How long does `insert_batch` of stacked rows take?"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.contender import Contender
from bench.full_table import SAMPLERS, full_table
from bench.limits.memcpy import memcpy_fresh, memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.size import Size
from bench.steps import STEP_BYTES, stacked
from bench.workload import Workload
from shmreplay.clients.table import TableHandle

BATCH = 256
NUM_BATCHES = 4  # different ones that the writer goes round
ORIENTATION_NS_PER_ITEM = 120.0


@contextlib.contextmanager
def contenders(size: Size, sampler: str) -> Iterator[list[Contender]]:
    rng = np.random.default_rng(2)
    batches = [stacked(BATCH, rng) for _ in range(NUM_BATCHES)]
    packed = rng.integers(0, 256, (NUM_BATCHES, BATCH * STEP_BYTES), np.uint8)
    with full_table(SAMPLERS[sampler], size.items, rng) as table:
        if sampler == "uniform":
            ours = Contender("insert_batch(steps)", "ours", inserts(table, batches, [None] * NUM_BATCHES))
        else:
            priorities = [1 - rng.random(BATCH) for _ in batches]
            ours = Contender("insert_batch(steps, priorities)", "ours", inserts(table, batches, priorities))
        yield [
            ours,
            robust_lock(),
            memcpy_warm(packed, max(1, size.items // BATCH)),
            memcpy_fresh(packed),
        ]


def inserts(table: TableHandle, batches: list[dict[str, NDArray[Any]]], priorities: list[Any]) -> Callable[[int], int]:
    endless = itertools.cycle(zip(batches, priorities, strict=True))

    def run(n: int) -> int:
        insert_batch = table.insert_batch
        start = time.monotonic_ns()
        for batch, its_priorities in itertools.islice(endless, n):
            insert_batch(batch, its_priorities)
        return time.monotonic_ns() - start

    return run


WORKLOADS = tuple(
    Workload(
        f"insert_batch_{sampler}",
        f"How long does insert_batch of {BATCH} stacked steps of {STEP_BYTES} bytes take, into a {sampler} table that "
        f"is full ({{items}} items){how}?",
        functools.partial(contenders, sampler=sampler),
        items_per_call=BATCH,
        orientation_ns=BATCH * ORIENTATION_NS_PER_ITEM,
    )
    for sampler, how in (("uniform", ""), ("prioritised", ", with priorities"))
)
