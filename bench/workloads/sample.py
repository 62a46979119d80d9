"""How long does a learner wait for a batch?"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from bench.contender import Contender
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.limits.gather import gather
from bench.limits.memcpy import memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.limits.sum_tree import BareSumTree
from bench.limits.take import take
from bench.size import Size
from bench.steps import COLUMN_BYTES, STEP_BYTES
from bench.workload import Workload
from shmreplay.clients.table import TableHandle

BATCH = 256
NUM_SETS = 512  # of rows that the limits go round: 131,072 rows, far beyond the caches
ORIENTATION_NS = {"uniform": None, "prioritised": 80_000.0}


@contextlib.contextmanager
def contenders(size: Size, sampler: str) -> Iterator[list[Contender]]:
    rng = np.random.default_rng(3)
    rows = drawn_rows(size.items, sampler, rng)
    packed = rng.integers(0, 256, (4, BATCH * STEP_BYTES), np.uint8)
    with full_table(SAMPLERS[sampler], size.items, rng) as table:
        limits = [
            robust_lock(),
            memcpy_warm(packed, 4),
            take([STEP_BYTES], size.items, rows),
            take(COLUMN_BYTES, size.items, rows),
            gather([STEP_BYTES], size.items, rows),
            gather(COLUMN_BYTES, size.items, rows),
        ]
        if sampler == "prioritised":
            limits.append(BareSumTree(size.items, EXPONENT, rng).draws(rng.random((NUM_SETS, BATCH))))
        yield [Contender(f"sample({BATCH})", "ours", samples(table)), *limits]


def drawn_rows(items: int, sampler: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows as the table's sampler draws them: by chance alone, or as priorities random in (0, 1] have it."""
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
        f"sample_{sampler}",
        f"How long does sample({BATCH}) of items of {STEP_BYTES} bytes in five columns take, {how}, among {{items}}?",
        functools.partial(contenders, sampler=sampler),
        items_per_call=BATCH,
        orientation_ns=ORIENTATION_NS[sampler],
    )
    for sampler, how in (("uniform", "uniform"), ("prioritised", f"prioritised with exponent {EXPONENT}"))
)
