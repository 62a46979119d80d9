"""What it costs to be alone for a moment, and to be found out when one dies in it."""

import ctypes
import os
import time

from bench.contender import Contender
from bench.limits.native import load
from bench.limits.shared_memory import warm


def robust_lock() -> Contender:
    """One robust process-shared lock and unlock, nobody else wanting it."""
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
