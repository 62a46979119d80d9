"""What it costs to copy a stacked batch, column by column, by NumPy's slices."""

import time
from typing import Any

from numpy.typing import NDArray

from bench.contender import Contender
from bench.limits.shared_memory import warm


def slice_copy(batches: list[dict[str, NDArray[Any]]], places: int) -> Contender:
    """Copies batches in turn to the next of `places` in one warm shared array per column, without keys or lock."""
    n = len(next(iter(batches[0].values())))
    columns = [(warm((places * n, *column.shape[1:]), column.dtype), name) for name, column in batches[0].items()]
    at = 0

    def run(times: int) -> int:
        nonlocal at
        start = time.monotonic_ns()
        for i in range(times):
            batch, first = batches[i % len(batches)], at * n
            for column, name in columns:
                column[first : first + n] = batch[name]
            at = (at + 1) % places
        return time.monotonic_ns() - start

    return Contender("bare slice copy of the columns", "limit", run)
