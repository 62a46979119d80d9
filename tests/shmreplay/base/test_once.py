"""An event that handlers of signals may set and wait for."""

import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from shmreplay.base.once import Once
from tests.support.interrupts import Interrupt
from tests.support.waiting import WAIT_S


def test_it_is_set_once_and_for_all() -> None:
    once = Once()
    assert not once.is_set
    assert not once.wait(0)
    assert not once.wait(0.01)
    once.set()
    once.set()
    assert once.is_set
    assert once.wait()
    assert once.wait(0)


def test_all_that_wait_go_on() -> None:
    once = Once()
    threads = [threading.Thread(target=once.wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    once.set()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture
def at_each_line() -> Iterator[None]:
    """Leaves tracing as it was."""
    before = sys.gettrace()
    yield
    sys.settrace(before)


class Handler:
    """Sets an event and waits for it at one instruction of `Once`, on the same thread, as a handler of a signal may."""

    def __init__(self, once: Once, at: int) -> None:
        self.once, self.at, self.num_seen = once, at, 0

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if frame.f_code.co_filename.endswith("once.py"):
            self.num_seen += 1
            if self.num_seen == self.at:
                sys.settrace(None)
                self.once.set()
                assert self.once.wait(WAIT_S)
                assert self.once.wait()
        return self


@pytest.mark.usefixtures("at_each_line")
@pytest.mark.parametrize("call", ["set", "wait"])
def test_a_handler_may_set_it_and_wait_at_every_instruction_of_a_call(call: str) -> None:
    for at in range(1, 1000):
        once = Once()
        handler = Handler(once, at)
        sys.settrace(handler)
        try:
            once.set() if call == "set" else once.wait(0.01)
        finally:
            sys.settrace(None)
        if handler.num_seen < at:
            break
        assert once.is_set
    assert at > 10


def test_an_interrupted_wait_keeps_nobody_waiting() -> None:
    once = Once()

    def interrupt(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    try:
        with pytest.raises(Interrupt):  # noqa: PT012  # the signal may come at once
            timer.start()
            once.wait(WAIT_S)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    once.set()
    assert once.wait(WAIT_S)
