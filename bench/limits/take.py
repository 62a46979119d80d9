"""What it costs a learner to copy rows of its own arrays, by NumPy's fastest call for that."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.contender import Contender
from bench.limits.shared_memory import warm


def take(column_bytes: Sequence[int], places: int, rows: NDArray[np.int64]) -> Contender:
    """Each call takes a set of `rows`, int64 `[sets, batch]`, from one warm array per column by np.take(out=)."""
    columns = [warm((places, num_bytes), "uint8") for num_bytes in column_bytes]
    out = [np.zeros((rows.shape[1], num_bytes), np.uint8) for num_bytes in column_bytes]
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = list(zip(columns, out, strict=True))
    at = 0

    def run(n: int) -> int:
        nonlocal at
        sets = [rows[(at + i) % len(rows)] for i in range(n)]
        at = (at + n) % len(rows)
        start = time.monotonic_ns()
        for chosen in sets:
            for array, to in pairs:
                np.take(array, chosen, axis=0, out=to, mode="clip")
        return time.monotonic_ns() - start

    return Contender(f"np.take(out=) of the rows from {arrays(len(columns))}", "limit", run)


def arrays(n: int) -> str:
    """The number of arrays, in words."""
    return "one array" if n == 1 else f"{n} arrays"
