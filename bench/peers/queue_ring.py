"""`multiprocessing.Queue`; the process at its end puts the steps into a ring of NumPy arrays. No priorities."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.crowd import Tally, crowd
from bench.peers.task import LeftOut, Ready, Task, Works, scenes_of
from bench.scenes import Ends

SLICE_S = 0.05
DEPTH = 10_000  # steps in the queue; a writer waits for room beyond it


class Ring:
    """Columns with one row for each item, in the memory of one process."""

    def __init__(self, task: Task) -> None:
        columns = task.steps.columns.items()
        self._columns = {name: np.ones((task.items, *shape), dtype) for name, (shape, dtype) in columns}
        self._items, self._at = task.items, 0

    def add(self, step: dict[str, Any]) -> None:
        for name, column in self._columns.items():
            column[self._at] = step[name]
        self._at = (self._at + 1) % self._items


@contextlib.contextmanager
def insert(task: Task) -> Iterator[Ready]:
    """One writer, and the process at the other end of the queue."""
    with consumed(task) as (queue, done):
        steps = task.steps.separate(task.steps.num_steps, np.random.default_rng(2))

        def run(n: int) -> int:
            before = int(done()[0])
            start = time.monotonic_ns()
            for i in range(n):
                queue.put(steps[i % len(steps)])
            while int(done()[0]) < before + n:
                time.sleep(1e-5)
            return time.monotonic_ns() - start

        yield Ready("multiprocessing.Queue into a numpy ring", run, SLICE_S, 256)


@contextlib.contextmanager
def processes(task: Task) -> Iterator[tuple[str, Ends]]:
    with consumed(task) as (queue, _):
        yield "multiprocessing.Queue into a numpy ring", Ends(lambda at: queue.put, end=lambda: flush(queue))


@contextlib.contextmanager
def waited_for(task: Task) -> Iterator[tuple[str, Ends]]:
    queue: Any = multiprocessing.Queue()
    ends = Ends(lambda at: queue.put, take=lambda at: lambda: int(queue.get()["action"]), end=lambda: flush(queue))
    yield "multiprocessing.Queue, get", ends


@contextlib.contextmanager
def consumed(task: Task) -> Iterator[tuple[Any, Any]]:
    """Yields a queue, and a counter: the number of steps that the process at its end has put into the ring, plus one.

    Writers must be forked before anything is put into the queue, because a later child lacks the queue's thread.
    """
    if task.exponent:
        raise LeftOut("has no priorities")
    queue: Any = multiprocessing.Queue(DEPTH)

    def consume(tally: Tally) -> None:
        ring = Ring(task)
        tally.add(1)  # says that the process works
        while tally.goes_on():
            ring.add(queue.get())
            tally.add(1)

    with crowd([consume]) as them:
        try:
            yield queue, them.counts
        finally:
            queue.cancel_join_thread()
            os.kill(them.pids[0], signal.SIGKILL)  # it waits for a step


def flush(queue: Any) -> None:
    queue.close()
    queue.join_thread()


WORKS: Works = {"insert": insert, **scenes_of(processes, "writers"), **scenes_of(waited_for, "woken")}
