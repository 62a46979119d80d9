"""How long does a learner wait for its priorities to be taken?"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from bench.contender import Contender
from bench.full_table import EXPONENT, SAMPLERS, full_table
from bench.limits.robust_lock import robust_lock
from bench.limits.sum_tree import BareSumTree
from bench.size import Size
from bench.workload import Workload
from shmreplay.clients.table import TableHandle

BATCH = 256
NUM_SETS = 512  # of keys, sampled beforehand


@contextlib.contextmanager
def contenders(size: Size) -> Iterator[list[Contender]]:
    rng = np.random.default_rng(4)
    priorities = 1 - rng.random((NUM_SETS, BATCH))
    with full_table(SAMPLERS["prioritised"], size.items, rng) as table:
        keys = [table.sample(BATCH).keys.copy() for _ in range(NUM_SETS)]
        tree = BareSumTree(size.items, EXPONENT, rng)
        yield [
            Contender("update_priorities(keys, priorities)", "ours", updates(table, keys, list(priorities))),
            robust_lock(),
            tree.updates(rng.integers(0, size.items, (NUM_SETS, BATCH)), priorities),
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


WORKLOADS = (
    Workload(
        "update_priorities",
        f"How long does update_priorities of {BATCH} sampled items take, among {{items}}, exponent {EXPONENT}?",
        contenders,
        items_per_call=BATCH,
    ),
)
