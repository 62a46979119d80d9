"""Ahead: a sampler whose thread could not be started, or was interrupted at its start, goes on and closes."""

import contextlib
import threading

import pytest

import shmreplay as sr
from tests.support.tables import TableMaker, numbers, step


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("can't start new thread")])
def test_a_start_that_fails_can_be_repeated_or_closed(
    make_table: TableMaker, monkeypatch: pytest.MonkeyPatch, is_begun: bool, error: BaseException
) -> None:
    table = make_table(10)
    table.insert(step(7))
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if is_begun:
            start(thread)
        raise error

    for goes_on in (True, False):
        with table.sampler(2, prefetch=2) as sampler:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", fail)
                with pytest.raises((KeyboardInterrupt, sr.ShmReplayError)) as raised:
                    next(sampler)
            if isinstance(error, RuntimeError):
                assert str(raised.value) == (
                    "shmreplay-sampler: can't start new thread; end other threads, or use prefetch=0"
                )
            if goes_on:
                assert numbers(next(sampler)).tolist() == [7, 7]


def test_an_interrupt_after_a_batch_or_an_error_was_taken_keeps_nobody_waiting(make_table: TableMaker) -> None:
    """As if a signal handler had raised just then: the thread was not told that there is room."""
    table = make_table(10)
    with table.sampler(2, prefetch=1, timeout_s=0) as sampler:
        with pytest.raises(sr.RateLimitTimeout):
            next(sampler)
        ahead = sampler._ahead
        assert ahead is not None
        ahead._ready.get()
        with pytest.raises(sr.RateLimitTimeout):
            next(sampler)
        table.insert(step(7))
        next_batch(sampler)
        ahead._ready.get()
        assert numbers(next(sampler)).tolist() == [7, 7]


def next_batch(sampler: sr.Sampler) -> None:
    """Attempts that began before the insert may still fail."""
    with contextlib.suppress(sr.RateLimitTimeout):
        next(sampler)
        return
    next_batch(sampler)
