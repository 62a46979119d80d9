"""What it costs to copy only the bytes, in one piece: into pages that exist, and into pages that do not exist yet."""

import ctypes
import time
from typing import Any

from numpy.typing import NDArray

from bench.contender import Contender
from bench.limits.native import load
from bench.limits.shared_memory import fresh, warm

MAX_FRESH_BYTES = 64 * 2**20  # of fresh memory at a time


class Copier:
    """Copies the rows of `source`, uint8 `[rows, bytes]`, in turn."""

    def __init__(self, source: NDArray[Any]) -> None:
        self._library = load("memcpy")
        self._source = source

    def copy(self, to: NDArray[Any], first: int, n: int) -> int:
        """Copies n rows to `to`, uint8 `[places, bytes]`, from place `first` on, going round. Returns nanoseconds."""
        places, num_bytes = to.shape
        numbers = [ctypes.c_uint64(i) for i in (places, first, len(self._source), num_bytes, n)]
        into, source = ctypes.c_void_p(to.ctypes.data), ctypes.c_void_p(self._source.ctypes.data)
        start = time.monotonic_ns()
        self._library.copy_blocks(into, numbers[0], numbers[1], source, *numbers[2:])
        return time.monotonic_ns() - start


def memcpy_warm(source: NDArray[Any], places: int) -> Contender:
    """Copies each row of `source` to the next of `places` in shared memory that was written before, going round."""
    copier = Copier(source)
    to = warm((places, source.shape[1]), "uint8")
    at = 0

    def run(n: int) -> int:
        nonlocal at
        took = copier.copy(to, at, n)
        at = (at + n) % places
        return took

    return Contender("memcpy into warm shared memory", "limit", run)


def memcpy_fresh(source: NDArray[Any]) -> Contender:
    """Copies each row of `source` into untouched shared memory: the kernel makes each page at its first access."""
    copier = Copier(source)
    at_once = max(1, MAX_FRESH_BYTES // source.shape[1])

    def run(n: int) -> int:
        took = 0
        for done in range(0, n, at_once):
            part = min(at_once, n - done)
            took += copier.copy(fresh((part, source.shape[1]), "uint8"), 0, part)
        return took

    return Contender("memcpy into fresh shared memory", "limit", run)
