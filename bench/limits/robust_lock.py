"""What it costs to take and release a lock whose owner's death others notice."""

import ctypes
import os
import time

from bench.contender import Contender
from bench.limits.native import load
from bench.limits.shared_memory import warm


def robust_lock() -> Contender:
    """One lock and unlock of a robust process-shared mutex that nobody else wants."""
    library = load("robust_lock")
    memory = warm((4096,), "uint8")
    lock = memory.ctypes.data_as(ctypes.c_void_p)  # keeps the memory
    check(library.make_lock(lock))

    def run(n: int) -> int:
        start = time.monotonic_ns()
        error = library.lock_and_unlock(lock, ctypes.c_uint64(n))
        took = time.monotonic_ns() - start
        check(error)
        return took

    return Contender("robust lock + unlock", "limit", run)


def check(error: int) -> None:
    if error != 0:
        raise OSError(error, os.strerror(error), "robust lock")
