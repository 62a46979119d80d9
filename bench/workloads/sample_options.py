"""What do the options of sample() that leave work out save a learner?"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bench.contender import Contender
from bench.full_table import SAMPLERS, full_table
from bench.size import Size
from bench.workload import Workload
from shmreplay.clients.tables.table import TableHandle

ITEMS = 1_000_000
BATCH = 256


@contextlib.contextmanager
def contenders(size: Size) -> Iterator[Sequence[Contender]]:
    with full_table(SAMPLERS["uniform"], min(ITEMS, size.items), np.random.default_rng(3)) as table:
        options: list[tuple[str, dict[str, Any]]] = [
            (f"sample({BATCH}, out=)", {"out": table.sample(BATCH)}),
            (f"sample({BATCH}), fresh arrays", {}),
            (f"sample({BATCH}, columns=) of 96 bytes", {"columns": ["observation"]}),
            (f"sample({BATCH}, replacement=False)", {"replacement": False}),
        ]
        yield [Contender(name, "ours", samples(table, given)) for name, given in options]


def samples(table: TableHandle, options: dict[str, Any]) -> Callable[[int], int]:
    def run(n: int) -> int:
        sample = table.sample
        start = time.monotonic_ns()
        for _ in range(n):
            batch = sample(BATCH, **options)  # kept until the next one is there, as a learner does
        took = time.monotonic_ns() - start
        if len(batch) != BATCH:
            raise RuntimeError(f"sample({BATCH}) gave {len(batch)} items")
        return took

    return run


WORKLOADS = (
    Workload(
        "sample_options",
        f"How long does sample({BATCH}) of items of 400 bytes in five columns take into arrays that are there already, "
        "into fresh ones, of one column, and without replacement, uniform?",
        contenders,
        "W2",
        items_per_call=BATCH,
    ),
)
