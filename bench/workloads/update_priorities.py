"""How long does a learner wait for its priorities to be taken?"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.contender import Absent, Contender, Trial
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.limits.robust_lock import robust_lock
from bench.limits.sum_tree import BareSumTree
from bench.peers.process import peers
from bench.peers.task import Task
from bench.size import Size
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

BATCH = 256
NUM_SETS = 512  # of keys, sampled beforehand


@contextlib.contextmanager
def contenders(size: Size, items: int) -> Iterator[Sequence[Contender | Trial | Absent]]:
    rng = np.random.default_rng(4)
    items = min(items, size.items)
    priorities = 1 - rng.random((NUM_SETS, BATCH))
    task = Task("update", items, batch=BATCH, exponent=EXPONENT)
    with full_table(SAMPLERS["prioritised"], items, rng) as table, peers(task) as others:
        keys = [table.sample(BATCH).keys.copy() for _ in range(NUM_SETS)]
        tree = BareSumTree(items, EXPONENT, rng)
        yield [
            Contender("update_priorities(keys, priorities)", "ours", updates(table, keys, list(priorities))),
            robust_lock(),
            tree.updates(rng.integers(0, items, (NUM_SETS, BATCH)), priorities),
            *others,
        ]


def updates(
    table: TableHandle, keys: list[NDArray[np.int64]], priorities: list[NDArray[np.float64]]
) -> Callable[[int], int]:
    endless = itertools.cycle(zip(keys, priorities, strict=True))

    def run(n: int) -> int:
        update = table.update_priorities
        start = time.monotonic_ns()
        for its_keys, its_priorities in itertools.islice(endless, n):
            update(its_keys, its_priorities)
        return time.monotonic_ns() - start

    return run


WORKLOADS = tuple(
    Workload(
        f"update_priorities_{named}",
        f"How long does update_priorities of {BATCH} sampled items take, among {items:,}, exponent {EXPONENT}?",
        functools.partial(contenders, items=items),
        "W7",
        items_per_call=BATCH,
        least_items=items,
    )
    for named, items in (("100k", 100_000), ("1M", 1_000_000))
)
