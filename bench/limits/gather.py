"""What it costs to copy the rows of a batch, if their memory is prefetched."""

import ctypes
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.contender import Contender
from bench.limits.native import load
from bench.limits.shared_memory import Addresses, warm
from bench.limits.take import arrays


def gather(column_bytes: Sequence[int], places: int, rows: NDArray[np.int64]) -> Contender:
    """Gathers a set of `rows`, int64 `[sets, batch]`, per call, from one warm shared array per column, in C++."""
    library = load("gather")
    columns = Addresses([warm((places, num_bytes), "uint8") for num_bytes in column_bytes])
    out = Addresses([np.zeros((rows.shape[1], num_bytes), np.uint8) for num_bytes in column_bytes])
    sizes = (ctypes.c_uint64 * len(column_bytes))(*column_bytes)
    rows = np.ascontiguousarray(rows)
    picked = rows.ctypes.data_as(ctypes.c_void_p)
    at = 0

    def run(n: int) -> int:
        nonlocal at
        numbers = [ctypes.c_uint64(i) for i in (len(sizes), *rows.shape, at, n)]
        start = time.monotonic_ns()
        library.gather_rows(out.pointers, columns.pointers, sizes, numbers[0], picked, *numbers[1:])
        took = time.monotonic_ns() - start
        at = (at + n) % len(rows)
        return took

    return Contender(f"C++ gather of the rows from {arrays(len(sizes))}, prefetched", "limit", run)
