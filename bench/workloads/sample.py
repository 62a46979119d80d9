"""How long does a learner wait for a batch?"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.contender import Absent, Contender, Trial
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.limits.gather import gather
from bench.limits.memcpy import memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.limits.sum_tree import BareSumTree
from bench.limits.take import take
from bench.peers.process import peers
from bench.peers.task import Task
from bench.size import Size
from bench.steps import LAYOUTS
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

BATCH = 256
BYTES_AN_ITEM = 16_000  # of all that are measured beside each other
NUM_SETS = 512  # of rows that the limits go round: 131,072 rows, far beyond the caches


@contextlib.contextmanager
def contenders(size: Size, sampler: str, items: int, layout: str) -> Iterator[Sequence[Contender | Trial | Absent]]:
    rng = np.random.default_rng(3)
    made = LAYOUTS[layout]
    items = min(items, made.items(size.items))
    rows = drawn_rows(items, sampler, rng)
    packed = rng.integers(0, 256, (4, BATCH * made.step_bytes), np.uint8)
    task = Task("sample", items, layout, BATCH, exponent=0.0 if sampler == "uniform" else EXPONENT)
    with (
        full_table(SAMPLERS[sampler], items, rng, made) as table,
        peers(task, both_mallocs=not size.is_quick) as others,
    ):
        limits = [
            robust_lock(),
            memcpy_warm(packed, 4),
            take([made.step_bytes], items, rows),
            take(made.column_bytes, items, rows),
            gather([made.step_bytes], items, rows),
            gather(made.column_bytes, items, rows),
        ]
        if sampler == "prioritised":
            limits.append(BareSumTree(items, EXPONENT, rng).draws(rng.random((NUM_SETS, BATCH))))
        yield [Contender(f"sample({BATCH})", "ours", samples(table)), *limits, *others]


def drawn_rows(items: int, sampler: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows drawn as by the table's sampler: uniformly, or by random priorities in (0, 1]."""
    if sampler == "uniform":
        return rng.integers(0, items, (NUM_SETS, BATCH))
    sums = np.cumsum((1 - rng.random(items)) ** EXPONENT)
    rows = np.searchsorted(sums, rng.random((NUM_SETS, BATCH)) * sums[-1], side="right")
    return np.asarray(np.minimum(rows, items - 1), np.int64)


def samples(table: TableHandle) -> Callable[[int], int]:
    def run(n: int) -> int:
        sample = table.sample
        start = time.monotonic_ns()
        for _ in range(n):
            batch = sample(BATCH)  # kept until the next one is there, as a learner does
        took = time.monotonic_ns() - start
        if len(batch) != BATCH:
            raise RuntimeError(f"sample({BATCH}) gave {len(batch)} items")
        return took

    return run


WORKLOADS = tuple(
    Workload(
        f"sample_{sampler}_{named}_{layout}",
        f"How long does sample({BATCH}) of items of {LAYOUTS[layout].name} in five columns take, {how}, among "
        f"{items:,}?",
        functools.partial(contenders, sampler=sampler, items=items, layout=layout),
        "W2",
        items_per_call=BATCH,
        memory=items * BYTES_AN_ITEM if layout == "400B" else 0,
        in_quick=sampler == "uniform" or layout == "400B",
        least_items=items if layout == "400B" else 0,
    )
    for sampler, how in (("uniform", "uniform"), ("prioritised", f"prioritised with exponent {EXPONENT}"))
    for named, items, layout in (("100k", 100_000, "400B"), ("1M", 1_000_000, "400B"), ("10k", 10_000, "40kB"))
)
