"""How fast do whole arrays go in?"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.contender import Contender
from bench.full_table import SAMPLERS, full_table
from bench.limits.memcpy import memcpy_fresh, memcpy_warm
from bench.limits.robust_lock import robust_lock
from bench.size import Size
from bench.steps import SMALL
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

ITEMS = 1_000_000
ROWS = 8192
NUM_ARRAYS = 4  # different ones that the writer goes round
EPISODE = 128  # rows


@contextlib.contextmanager
def contenders(size: Size) -> Iterator[Sequence[Contender]]:
    rng = np.random.default_rng(5)
    arrays = [SMALL.stacked(ROWS, rng) for _ in range(NUM_ARRAYS)]
    for columns in arrays:
        columns["terminated"][:] = np.arange(ROWS) % EPISODE == EPISODE - 1
    packed = rng.integers(0, 256, (NUM_ARRAYS, ROWS * SMALL.step_bytes), np.uint8)
    items = min(ITEMS, size.items)
    with full_table(SAMPLERS["uniform"], items, rng) as table:
        yield [
            Contender("extend(columns)", "ours", extends(table, arrays)),
            robust_lock(),
            memcpy_warm(packed, max(1, items // ROWS)),
            memcpy_fresh(packed),
        ]


def extends(table: TableHandle, arrays: list[dict[str, NDArray[Any]]]) -> Callable[[int], int]:
    endless = itertools.cycle(arrays)

    def run(n: int) -> int:
        extend = table.extend
        start = time.monotonic_ns()
        for columns in itertools.islice(endless, n):
            extend(columns)
        return time.monotonic_ns() - start

    return run


WORKLOADS = (
    Workload(
        "extend",
        f"How long does extend of arrays of {ROWS} rows of {SMALL.name} take, each row an item and {EPISODE} "
        "rows an episode, into a uniform table that is full?",
        contenders,
        items_per_call=ROWS,
    ),
)
