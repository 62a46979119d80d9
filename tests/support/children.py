"""Forked processes of a test: each runs a function with a pipe to the test, and what it raises fails the test."""

import concurrent.futures
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

from shmreplay.clients.tables.table import TableHandle
from tests.support.waiting import WAIT_S

STOP_TRY_S = 0.5  # for a look at a small arena

Work = Callable[[Connection], object]

_fork = multiprocessing.get_context("fork")


def stop(pid: int) -> None:
    """Stops a child of this process. SIGSTOP alone takes effect later: until then, the child goes on."""
    os.kill(pid, signal.SIGSTOP)
    found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert found is not None
    assert found.si_code == os.CLD_STOPPED, f"process {pid} ended"


class Child:
    """A forked process that runs `work(pipe)` and then ends."""

    def __init__(self, work: Work) -> None:
        self.pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=_run, args=(work, theirs))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def receive(self) -> Any:
        """The next thing that it sends."""
        kind, value = self._next()
        assert kind == "said", f"child {self.pid} ended and returned {value!r}"
        return value

    def send(self, value: object = None) -> None:
        """Lets its `pipe.recv()` return."""
        self.pipe.send(value)

    def result(self) -> Any:
        """What `work` returned, once the process has ended."""
        kind, value = self._next()
        assert kind == "returned", f"child {self.pid} goes on and says {value!r}"
        self._process.join(WAIT_S)
        assert self._process.exitcode == 0
        return value

    def _next(self) -> tuple[str, Any]:
        if not self.pipe.poll(WAIT_S):
            pytest.fail(f"child {self.pid} says nothing")
        try:
            kind, value = self.pipe.recv()
        except EOFError:
            self._process.join(WAIT_S)
            pytest.fail(f"child {self.pid} ended with code {self._process.exitcode}")
        if kind == "failed":
            pytest.fail(f"child {self.pid} failed:\n{value}")
        return kind, value

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """SIGSTOP; returns when all of its threads have stopped."""
        stop(self.pid)

    def go_on(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is dead."""
        self._process.kill()
        self._process.join(WAIT_S)
        assert self._process.exitcode == -signal.SIGKILL
        self.pipe.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def has_something(self) -> bool:
        """Whether `receive` would return at once."""
        return self.pipe.poll()


class _Pipe:
    """The child's end: what it sends says what it is."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def send(self, value: object = None) -> None:
        self._pipe.send(("said", value))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


def _run(work: Callable[[Any], object], pipe: Connection) -> None:
    try:
        value = work(_Pipe(pipe))
    except BaseException:  # noqa: BLE001  # told to the test, which fails with it
        pipe.send(("failed", traceback.format_exc()))
        os._exit(1)
    pipe.send(("returned", value))


def stop_outside_a_hold(child: Child, table: TableHandle) -> None:
    """Stops a child that works on the table, at any place where it does not have the arena's lock.

    A holder has the lock for some instructions before it signs and after it has signed off. So the signature alone
    does not tell; that somebody else gets the lock does.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        while True:
            child.stop()
            if (table._arena.lock_holder() or {}).get("pid") == child.pid:
                child.go_on()
                continue
            look = pool.submit(table._arena.check)
            if concurrent.futures.wait([look], STOP_TRY_S).done:
                assert look.result() == []
                return
            child.go_on()  # it has the lock, or the machine is busy: another try
            assert look.result(WAIT_S) == []


def stop_in_a_hold(child: Child, table: TableHandle) -> None:
    """Stops a child that looks through its whole arena again and again while it has the lock."""
    while True:
        child.stop()
        if (table._arena.lock_holder() or {}).get("pid") == child.pid:
            return
        child.go_on()
        os.sched_yield()


def look_for_ever(table: TableHandle) -> Work:
    def look(pipe: Any) -> None:
        arena = table._client._attach("replay").arena
        arena.check()
        pipe.send()
        while True:
            arena.check()

    return look


def first_to_speak(children: list[Child]) -> list[Child]:
    """Those that have something to say or have ended, waiting for one."""
    by_pipe = {child.pipe: child for child in children}
    ready = wait(list(by_pipe), WAIT_S)
    assert ready, "no child says anything"
    return [child for pipe, child in by_pipe.items() if pipe in ready]


Fork = Callable[[Work], Child]  # what `fork` gives


@pytest.fixture
def fork() -> Iterator[Fork]:
    """Forks children; those that still run at the end of the test are killed."""
    children: list[Child] = []

    def start(work: Work) -> Child:
        children.append(Child(work))
        return children[-1]

    yield start
    for child in children:
        if child.is_alive:
            child.kill()
