"""What priorities cost: draws and updates in a sum tree that no other process shares."""

import ctypes
import time
import weakref

import numpy as np
from numpy.typing import NDArray

from bench.contender import Contender
from bench.limits.native import load

MAX_BATCH = 1024  # as in sum_tree.cc


class BareSumTree:
    """A sum tree in C++ with one leaf for each item of the table, all with random weights.

    Args:
        leaves: number of leaves.
        exponent: exponent of the priorities.
    """

    def __init__(self, leaves: int, exponent: float, rng: np.random.Generator) -> None:
        self._library = load("sum_tree")
        self._library.make_tree.restype = ctypes.c_void_p
        self._tree = ctypes.c_void_p(self._library.make_tree(ctypes.c_uint64(leaves), ctypes.c_double(exponent)))
        self._finalizer = weakref.finalize(self, self._library.free_tree, self._tree)
        for first in range(0, leaves, MAX_BATCH):
            some = np.arange(first, min(first + MAX_BATCH, leaves))[None, :]
            self._update(some, 1 - rng.random(some.shape), 0, 1)

    def updates(self, leaves: NDArray[np.int64], priorities: NDArray[np.float64]) -> Contender:
        """Each call updates one set. Both arrays are `[sets, batch]`."""
        at = 0

        def run(n: int) -> int:
            nonlocal at
            took = self._update(leaves, priorities, at, n)
            at = (at + n) % len(leaves)
            return took

        return Contender("update of a bare sum tree", "limit", run)

    def draws(self, uniforms: NDArray[np.float64]) -> Contender:
        """Each call draws by one set of `uniforms`, numbers in [0, 1), `[sets, batch]`."""
        leaves = np.zeros(uniforms.shape[1], np.int64)
        at = 0

        def run(n: int) -> int:
            nonlocal at
            numbers = [ctypes.c_uint64(i) for i in (*uniforms.shape, at, n)]
            pointers = [ctypes.c_void_p(a.ctypes.data) for a in (uniforms, leaves)]
            start = time.monotonic_ns()
            self._library.draw_leaves(self._tree, *pointers, *numbers)
            took = time.monotonic_ns() - start
            at = (at + n) % len(uniforms)
            return took

        return Contender("draw from a bare sum tree", "limit", run)

    def _update(self, leaves: NDArray[np.int64], priorities: NDArray[np.float64], first: int, n: int) -> int:
        numbers = [ctypes.c_uint64(i) for i in (*leaves.shape, first, n)]
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (leaves, priorities)]
        start = time.monotonic_ns()
        self._library.update_leaves(self._tree, *pointers, *numbers)
        return time.monotonic_ns() - start
