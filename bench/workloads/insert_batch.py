"""How long does `insert_batch` of stacked rows take?"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.contender import Absent, Contender, Trial
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.limits.memcpy import memcpy_fresh, memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.limits.slice_copy import slice_copy
from bench.peers.process import peers
from bench.peers.task import Task
from bench.size import Size
from bench.steps import LAYOUTS
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

ITEMS = 1_000_000  # of 400 B; as many bytes of the larger ones
NUM_BATCHES = 4  # different ones that the writer goes round


@contextlib.contextmanager
def contenders(size: Size, sampler: str, batch: int, layout: str) -> Iterator[Sequence[Contender | Trial | Absent]]:
    rng = np.random.default_rng(2)
    made = LAYOUTS[layout]
    items = max(batch, made.items(min(ITEMS, size.items)))
    batches = [made.stacked(batch, rng) for _ in range(NUM_BATCHES)]
    packed = rng.integers(0, 256, (NUM_BATCHES, batch * made.step_bytes), np.uint8)
    task = Task("insert stacked", items, layout, batch, exponent=0.0 if sampler == "uniform" else EXPONENT)
    with full_table(SAMPLERS[sampler], items, rng, made) as table, peers(task) as others:
        if sampler == "uniform":
            ours = Contender("insert_batch(steps)", "ours", inserts(table, batches, [None] * NUM_BATCHES))
        else:
            priorities = [1 - rng.random(batch) for _ in batches]
            ours = Contender("insert_batch(steps, priorities)", "ours", inserts(table, batches, priorities))
        places = max(1, items // batch)
        yield [
            ours,
            robust_lock(),
            memcpy_warm(packed, places),
            memcpy_fresh(packed),
            slice_copy(batches, places),
            *others,
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
        f"insert_batch_{sampler}_{batch}_{layout}",
        f"How long does insert_batch of {batch} stacked steps of {LAYOUTS[layout].name} take, into a {sampler} table "
        f"that is full{how}?",
        functools.partial(contenders, sampler=sampler, batch=batch, layout=layout),
        "W1",
        items_per_call=batch,
        in_quick=(batch, layout) in ((256, "400B"), (64, "40kB")),
    )
    for sampler, batch, layout, how in (
        ("uniform", 256, "400B", ""),
        ("uniform", 64, "400B", ""),
        ("uniform", 256, "4kB", ""),
        ("uniform", 64, "40kB", ""),
        ("uniform", 64, "400kB", ""),
        ("prioritised", 256, "400B", ", with priorities"),
    )
)
