"""What it costs to pick the rows themselves, when each is one piece and memory is asked for them ahead of time."""

import ctypes
import time

import numpy as np
from numpy.typing import NDArray

from bench.contender import Contender
from bench.limits.native import load
from bench.limits.shared_memory import warm


def gather(row_bytes: int, places: int, rows: NDArray[np.int64]) -> Contender:
    """`rows`, int64 `[sets, batch]`, a set a call, from one warm shared array by C++ that prefetches."""
    library = load("gather")
    array = warm((places, row_bytes), "uint8")
    out = np.zeros((rows.shape[1], row_bytes), np.uint8)
    rows = np.ascontiguousarray(rows)
    at = 0

    def run(n: int) -> int:
        nonlocal at
        sizes = [ctypes.c_uint64(i) for i in (*rows.shape, at, n)]
        to, source, picked = (ctypes.c_void_p(a.ctypes.data) for a in (out, array, rows))
        start = time.monotonic_ns()
        library.gather_rows(to, source, ctypes.c_uint64(row_bytes), picked, *sizes)
        took = time.monotonic_ns() - start
        at = (at + n) % len(rows)
        return took

    return Contender("C++ gather of the rows from one array, prefetched", "limit", run)
