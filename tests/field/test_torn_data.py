"""Group A: torn or racy data, as public bug reports of buffers in shared memory found it.

Covered elsewhere: A1, readers see half-written rows (pytorch/rl#3463, huggingface/lerobot#2309), and A2, rows that are
not committed: tests/system/test_torn_rows.py, and threads_test.cc of tests/native, also under a thread
sanitizer. A5, a slot is reused while a reader copies it (pytorch/tutorials#3261): leases_test.cc and
`test_a_stopped_reader_holds_up_nobody`. A8, the step given is changed (ymd-h/cpprb#116):
`test_the_callers_arrays_stay_the_callers`.
"""

import os
import signal
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.children import Fork
from tests.support.rounds import rounds
from tests.support.tables import TableMaker, check

WIDTH = 1000
SIGNATURE = {"row": sr.ArraySpec((WIDTH,), "float32")}
STOPS = rounds(200, 800)


@pytest.mark.slow
def test_readers_and_writers_that_are_stopped_anywhere_see_no_half_written_row(
    make_table: TableMaker, fork: Fork, rng: np.random.Generator
) -> None:
    """A3, the home-made readers-writer lock of ymd-h/cpprb: a delay between its steps let a reader past it.

    Every process is stopped and continued again and again, wherever it is: between any two instructions.
    """
    table = make_table(16, signature=SIGNATURE, capacity_steps=16, chunk_steps=2, max_streams=8, max_sessions=16)

    def write(pipe: Any, first: int) -> int:
        count = 0
        while not pipe.poll():
            table.insert({"row": np.full(WIDTH, first + count % 2**20, np.float32)})
            count += 1
        return count

    def read(pipe: Any) -> tuple[int, int]:
        looked, torn = 0, 0
        while not pipe.poll():
            found = table.sample(32).data["row"]
            looked += len(found)
            torn += int((found != found[:, :1]).any(axis=1).sum())
        return looked, torn

    writers = [fork(lambda pipe, i=i: write(pipe, i * 2**20)) for i in range(3)]  # type: ignore[misc]
    readers = [fork(read) for _ in range(3)]
    for _ in range(STOPS):
        stopped = rng.choice(6, int(rng.integers(1, 4)), replace=False)
        for signal_number in (signal.SIGSTOP, signal.SIGCONT):
            for i in stopped:
                [*writers, *readers][i].signal(signal_number)
            for _ in range(int(rng.integers(20))):
                os.sched_yield()
    for child in (*writers, *readers):
        child.send()
    written = sum(child.result() for child in writers)
    results = [child.result() for child in readers]
    print(f"{written} rows written, {sum(looked for looked, _ in results)} looked at")
    assert [torn for _, torn in results] == [0, 0, 0]
    assert all(looked > 0 for looked, _ in results)
    assert written > 100 * 16
    assert check(table) == []
