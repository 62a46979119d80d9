"""What it costs to copy a step out of Python objects."""

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from bench.contender import Contender
from bench.limits.native import load_with_python
from bench.limits.shared_memory import Addresses, warm


def dict_copy(steps: list[dict[str, Any]], column_bytes: Sequence[int], places: int) -> Contender:
    """Copies steps in turn, each column into its own array of `places` rows in warm shared memory, by a C function.

    The steps hold arrays, ints for int64, floats for float32, and bools.
    """
    library = load_with_python("dict_copy")
    library.copy_dicts.restype = ctypes.c_uint64
    columns = Addresses([warm((places, num_bytes), "uint8") for num_bytes in column_bytes])
    sizes = (ctypes.c_uint64 * len(column_bytes))(*column_bytes)
    keys = tuple(steps[0])
    at = 0

    def run(n: int) -> int:
        nonlocal at
        numbers = [ctypes.c_uint64(i) for i in (places, at, n)]
        start = time.monotonic_ns()
        done = library.copy_dicts(ctypes.py_object(steps), ctypes.py_object(keys), columns.pointers, sizes, *numbers)
        took = time.monotonic_ns() - start
        if done != n:
            raise KeyError(f"a step lacks one of the keys {keys}")
        at = (at + n) % places
        return took

    return Contender("dict of five columns copied by a bare C function", "limit", run)
