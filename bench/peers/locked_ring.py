"""A ring of NumPy arrays in shared memory under `multiprocessing.Lock`, as somebody would write it in an afternoon."""

import contextlib
import mmap
import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.task import LeftOut, Ready, Task, Works, scenes_of, timed
from bench.scenes import Ends

NUM_BATCHES = 4


class LockedRing:
    """Full columns with one row for each item."""

    def __init__(self, task: Task) -> None:
        self._items = task.items
        self._columns = {
            name: _shared((task.items, *shape), dtype) for name, (shape, dtype) in task.steps.columns.items()
        }
        self._at = _shared((1,), "int64")
        self._lock = multiprocessing.Lock()
        self._rng = np.random.default_rng(1)
        n = max(1, min(1000, 400_000 // task.steps.step_bytes, task.items))
        rows = task.steps.stacked(n, self._rng)
        for _ in range(task.items // n + 1):
            self.add_batch(rows)

    def add(self, step: dict[str, Any]) -> None:
        with self._lock:
            at = self._at[0]
            for name, column in self._columns.items():
                column[at] = step[name]
            self._at[0] = (at + 1) % self._items

    def add_batch(self, rows: dict[str, NDArray[Any]]) -> None:
        n = len(rows["action"])
        with self._lock:
            at = int(self._at[0])
            first = min(n, self._items - at)
            for name, column in self._columns.items():
                column[at : at + first] = rows[name][:first]
                column[: n - first] = rows[name][first:]
            self._at[0] = (at + n) % self._items

    def sample(self, n: int) -> dict[str, NDArray[Any]]:
        rows = self._rng.integers(0, self._items, n)
        with self._lock:
            return {name: column.take(rows, axis=0, mode="clip") for name, column in self._columns.items()}


@contextlib.contextmanager
def insert(task: Task) -> Iterator[Ready]:
    _refuse_priorities(task)
    ring = LockedRing(task)
    steps = task.steps.separate(task.steps.num_steps, np.random.default_rng(2))
    yield Ready("numpy ring under a lock, a step", timed(ring.add, steps))


@contextlib.contextmanager
def insert_stacked(task: Task) -> Iterator[Ready]:
    _refuse_priorities(task)
    ring = LockedRing(task)
    rng = np.random.default_rng(2)
    batches = [task.steps.stacked(task.batch, rng) for _ in range(NUM_BATCHES)]
    yield Ready(f"numpy ring under a lock, {task.batch} stacked", timed(ring.add_batch, batches))


@contextlib.contextmanager
def sample(task: Task) -> Iterator[Ready]:
    _refuse_priorities(task)
    ring = LockedRing(task)
    yield Ready("numpy ring under a lock, take", timed(ring.sample, [task.batch]))


@contextlib.contextmanager
def processes(task: Task) -> Iterator[tuple[str, Ends]]:
    _refuse_priorities(task)
    ring = LockedRing(task)

    def learn() -> int:
        ring.sample(task.batch)
        return task.batch

    yield "numpy ring under a lock", Ends(lambda at: ring.add, lambda at: learn)


def _refuse_priorities(task: Task) -> None:
    if task.exponent:
        raise LeftOut("has no priorities")


def _shared(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    n = int(np.prod(shape))
    return np.frombuffer(mmap.mmap(-1, n * np.dtype(dtype).itemsize), dtype, n).reshape(shape)


WORKS: Works = {
    "insert": insert,
    "insert stacked": insert_stacked,
    "sample": sample,
    **scenes_of(processes, "writers", "mixed", "beside", "attached"),
}
