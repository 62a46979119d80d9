"""A lock that nobody leaves: every call with a timeout ends, the error names who has it, and the daemon can be stopped.

The mutex of a live arena is written to, as by a holder that is stopped before it has signed or after it has signed off,
and as by a stray write. tests/native/arena/robust_lock_test.cc stops real holders there.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay import _core
from shmreplay.clients.tables.table import TableHandle
from shmreplay.segments.segment import segment_names
from tests.support.children import Child, Fork, fork
from tests.support.daemons import DaemonProcess
from tests.support.rounds import rounds
from tests.support.tables import COLUMNS, check, client_of, step, steps
from tests.support.waiting import WAIT_S

__all__ = ["fork"]

TIMEOUT_S = 1.0
NO_THREAD = 2**30 - 1  # no thread has an id above 2^22


class Mutex:
    """The word of the arena's mutex that says which thread has it. It comes first after the specs."""

    def __init__(self, daemon: DaemonProcess, arena: str) -> None:
        self._fd = os.open(daemon.store.path(segment_names(daemon.instance, arena).index), os.O_RDWR)
        start = os.pread(self._fd, 1 << 20, 0)
        specs = _core.inspect_header(self._fd)["specs"]
        self._offset = -(-(start.index(specs) + len(specs)) // 128) * 128
        assert self.thread == 0

    @property
    def thread(self) -> int:
        return int.from_bytes(os.pread(self._fd, 4, self._offset), "little") & (2**30 - 1)

    @thread.setter
    def thread(self, thread: int) -> None:
        os.pwrite(self._fd, thread.to_bytes(4, "little"), self._offset)

    def close(self) -> None:
        os.close(self._fd)


def has_the_lock(mutex: Mutex, fork: Fork) -> Child:
    """A stopped process that has the lock, as one that is stopped while hold_seq is even."""
    child = fork(lambda pipe: pipe.recv())
    child.stop()
    mutex.thread = child.pid
    return child


@pytest.fixture
def table(client: sr.Client) -> TableHandle:
    client.create_tables([sr.Table("replay", COLUMNS, 100, max_streams=8, max_sessions=16)])
    table = client.table("replay")
    table.insert_batch(steps(range(10)))
    return table


@pytest.fixture
def mutex(daemon: DaemonProcess, table: TableHandle) -> Iterator[Mutex]:
    with contextlib.closing(Mutex(daemon, "replay")) as mutex:
        yield mutex


def append(table: TableHandle) -> None:
    with table.writer() as writer:
        writer.append(step(1), timeout_s=TIMEOUT_S)
        writer.create_item(timeout_s=TIMEOUT_S)


CALLS: dict[str, Callable[[TableHandle], object]] = {
    "insert": lambda table: table.insert(step(1), timeout_s=TIMEOUT_S),
    "insert_batch": lambda table: table.insert_batch(steps([1, 2]), timeout_s=TIMEOUT_S),
    "append": append,
    "sample": lambda table: table.sample(2, timeout_s=TIMEOUT_S),
    "look": lambda table: table.sample(2, count=False, timeout_s=TIMEOUT_S),
    "view": lambda table: table.view(2, timeout_s=TIMEOUT_S),
    "reset": lambda table: client_of(table).reset("replay", timeout_s=TIMEOUT_S),
    "pause": lambda table: client_of(table).pause("replay", timeout_s=TIMEOUT_S),
    "drop_table": lambda table: client_of(table).drop_table("replay", timeout_s=TIMEOUT_S),
}


@pytest.mark.crash
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.one_quick
def test_a_call_with_a_timeout_ends_and_says_who_has_the_lock(
    table: TableHandle, mutex: Mutex, fork: Fork, call: str
) -> None:
    child = has_the_lock(mutex, fork)
    holder = table._arena.lock_holder()
    assert holder is not None
    assert (holder["pid"], holder["hold_seq"] % 2) == (child.pid, 0)
    with pytest.raises(sr.ShmReplayError, match="lock") as caught:
        CALLS[call](table)
    assert str(child.pid) in str(caught.value)
    mutex.thread = 0
    assert check(table) == []
    assert table.insert(step(3), timeout_s=WAIT_S) > 0


@pytest.mark.crash
def test_an_attach_with_a_timeout_ends(daemon: DaemonProcess, table: TableHandle, mutex: Mutex, fork: Fork) -> None:
    has_the_lock(mutex, fork)

    def attach(_: Any) -> str:
        with daemon.connect() as client:
            client.lock_timeout_s = TIMEOUT_S
            try:
                return str(client.table("replay"))
            except sr.ShmReplayError as error:
                return str(error)

    said = fork(attach).result()
    mutex.thread = 0
    assert "kept the arena's lock" in said
    assert check(table) == []


@pytest.mark.crash
@pytest.mark.long
def test_a_daemon_is_stopped_by_sigterm_while_somebody_has_the_lock(
    daemon: DaemonProcess, table: TableHandle, mutex: Mutex, fork: Fork
) -> None:
    def insert_one(pipe: Any) -> None:
        table.insert(step(1))
        pipe.send()
        pipe.recv()

    gone = fork(insert_one)
    gone.receive()
    has_the_lock(mutex, fork)
    gone.kill()  # the daemon waits for the lock, to take back the session
    assert daemon.stop() == 0
    assert daemon.left_behind() == []
    with pytest.raises(sr.ShmReplayError):
        table.insert(step(1), timeout_s=TIMEOUT_S)


@pytest.mark.crash
def test_a_lock_that_no_thread_has_is_damage_also_for_calls_without_a_timeout(
    daemon: DaemonProcess, table: TableHandle, mutex: Mutex
) -> None:
    mutex.thread = NO_THREAD
    calls: list[Callable[[], object]] = [
        lambda: table.insert(step(1)),
        lambda: table.sample(2),
        lambda: client_of(table).reset("replay"),
    ]
    for call in calls:
        with pytest.raises(sr.SegmentFailed, match="replay"):
            call()
    assert daemon.stop() == 0
    assert daemon.left_behind() == []


@pytest.mark.crash
def test_a_process_that_is_stopped_anywhere_in_an_insert_is_named_by_a_call_with_a_timeout(
    table: TableHandle, fork: Fork, rng: np.random.Generator
) -> None:
    def insert_for_ever(pipe: Any) -> None:
        table.insert(step(1))
        pipe.send()
        while True:
            table.insert(step(1))

    child = fork(insert_for_ever)
    child.receive()
    num_even = 0
    for _ in range(rounds(2, 25)):
        holder = stopped_with_the_lock(child, table, rng)
        num_even += holder["hold_seq"] % 2 == 0
        with pytest.raises(sr.ShmReplayError, match=f"process {child.pid}"):
            table.sample(1, timeout_s=TIMEOUT_S)
        child.go_on()
    print(f"{num_even} of these stops while hold_seq was even")
    table.sample(1, timeout_s=WAIT_S)
    child.kill()
    assert check(table) == []


def stopped_with_the_lock(child: Child, table: TableHandle, rng: np.random.Generator) -> dict[str, int]:
    """Stops the child at random moments, until it has the lock."""
    while True:
        until = time.perf_counter() + rng.random() * 300e-6
        while time.perf_counter() < until:
            os.sched_yield()
        child.stop()
        holder: dict[str, int] | None = table._arena.lock_holder()
        if holder is not None:
            assert holder["pid"] == child.pid
            return holder
        child.go_on()
