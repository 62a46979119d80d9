"""Children forked at random moments beside threads that do everything: no lock that a thread had keeps a child.

Nothing here logs: a stream of Python's has a lock of its own, which a fork copies.
"""

import os
import pathlib
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable

import numpy as np
import pytest

import shmreplay as sr
import shmreplay.clients
from shmreplay.clients.tables.table import TableHandle
from tests.support.rounds import rounds
from tests.support.tables import TableMaker
from tests.support.waiting import WAIT_S

FORKS = rounds(8, 60)
SIGNATURE = {
    "n": sr.ArraySpec((), "int64"),
    "packed": sr.ArraySpec((30,), "uint16", compression="lz4", mean_bytes=60),
    "ragged": sr.ArraySpec((None,), "uint8", mean_bytes=64),
    "maybe": sr.ArraySpec((2,), "float32", optional=True),
}


def step(n: int) -> dict[str, object]:
    return {"n": n, "packed": np.full(30, n, np.uint16), "ragged": np.zeros(n % 9, np.uint8), "maybe": None}


def read(table: TableHandle) -> None:
    batch = table.sample(4, timeout_s=WAIT_S)
    assert (batch.data["packed"][:, 0] == batch.data["n"] % 2**16).all()
    _ = batch.mask, batch.lengths, batch.weights(0.5)
    with table.view(2, timeout_s=WAIT_S) as view:
        _ = [item.data for item in view]


def sample_ahead(table: TableHandle) -> None:
    with table.sampler(4, prefetch=1, timeout_s=WAIT_S) as sampler:
        _ = next(sampler).data


def write(table: TableHandle) -> None:
    table.insert(step(1))
    table.insert_batch(rows(2))


def rows(n: int) -> dict[str, object]:
    return {
        "n": np.arange(n),
        "packed": np.repeat(np.arange(n, dtype=np.uint16)[:, None], 30, 1),
        "ragged": [np.zeros(i, np.uint8) for i in range(n)],
        "maybe": [None] * n,
    }


def declare(table: TableHandle) -> None:
    spec = sr.Table("other", SIGNATURE, 10)
    assert spec.sig.has_heap
    assert table.info().size > 0


WORK: list[Callable[[TableHandle], None]] = [read, sample_ahead, write, declare]


def exit_code(pid: int) -> int:
    """Waits for a child. One that goes on for long is killed."""
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if not poll.poll(WAIT_S * 1000):
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(pidfd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def child(table: TableHandle) -> None:
    code = 1
    try:
        for work in WORK:
            work(table)
        code = 0
    except BaseException:  # noqa: BLE001  # the test sees the exit code
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_at_any_moment_can_do_everything(make_table: TableMaker, rng: np.random.Generator) -> None:
    table = make_table(200, signature=SIGNATURE, max_streams=64, max_sessions=16)
    for n in range(20):
        table.insert(step(n))
    client, is_over, failed = table._client, threading.Event(), list[BaseException]()

    def repeat(work: Callable[[TableHandle], None]) -> None:
        try:
            while not is_over.is_set():
                work(table)
                work(sr.Client.table(client, table.name))  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001  # the test raises it
            failed.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in WORK]
    for thread in threads:
        thread.start()
    try:
        for _ in range(FORKS):
            time.sleep(rng.random() * 0.005)  # a random moment
            if (pid := os.fork()) == 0:
                child(table)
            assert exit_code(pid) == 0
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert failed == []


def test_nothing_uses_the_cached_property_that_has_a_lock() -> None:
    folders = [pathlib.Path(module.__file__ or "").parent for module in (sr, shmreplay.clients)]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    assert len(files) > 100
    lock = "from functools import cached_property"
    assert [file for file in files if lock in file.read_text(encoding="utf-8")] == []
