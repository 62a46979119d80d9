"""OwnThread and Threads: interrupts at a start, no thread to be had, and the end with Python."""

import os
import threading
from collections.abc import Callable

import pytest

import shmreplay as sr
from shmreplay.base.own_thread import OwnThread, Threads
from tests.support.waiting import WAIT_S, eventually


class Owner:
    def __init__(self, threads: Threads) -> None:
        self.end, self.works, self.has_left = threading.Event(), 0, False
        self.thread = OwnThread(threads, self, "a-thread", "end other threads")

    def work(self) -> None:
        self.works += 1
        self.end.wait(WAIT_S)

    def leave(self) -> None:
        self.end.set()

    def left(self) -> None:
        self.has_left = True


def start_at(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[Callable[[], None]], None]) -> None:
    """Has `interrupt(start)` run in place of a thread's start."""
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: interrupt(lambda: start(thread)))


def test_it_works_once_however_often_it_is_started() -> None:
    owner = Owner(Threads())
    for _ in range(3):
        assert owner.thread.start(owner.work)
    eventually(lambda: owner.works == 1)
    assert not owner.thread.has_ended
    owner.leave()
    assert owner.thread.join()
    assert owner.thread.has_ended
    assert owner.thread.start(owner.work)
    assert owner.works == 1


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_interrupt_at_the_start_leaves_it_so_that_it_can_be_started_and_joined(
    monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    owner = Owner(Threads())

    def interrupt(start: Callable[[], None]) -> None:
        if is_begun:
            start()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        start_at(patch, interrupt)
        with pytest.raises(KeyboardInterrupt):
            owner.thread.start(owner.work)
    assert owner.thread.start(owner.work)
    eventually(lambda: owner.works == 1)
    owner.leave()
    assert owner.thread.join()
    assert owner.works == 1


def test_one_that_was_interrupted_before_its_start_is_joined_at_once_and_never_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner(Threads())

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        start_at(patch, interrupt)
        with pytest.raises(KeyboardInterrupt):
            owner.thread.start(owner.work)
    assert not owner.thread.join()
    assert owner.thread.has_ended
    assert owner.thread.start(owner.work)
    assert owner.works == 0


def test_no_thread_to_be_had_is_an_error_that_says_what_to_do_and_the_next_start_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner(Threads())

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        start_at(patch, refuse)
        with pytest.raises(sr.ShmReplayError, match=r"^a-thread: can't start new thread; end other threads$"):
            owner.thread.start(owner.work)
    assert owner.thread.start(owner.work)
    owner.leave()
    assert owner.thread.join()


def test_the_end_has_all_threads_leave_and_waits_for_them_also_for_those_whose_owner_is_gone() -> None:
    threads = Threads()
    owner, other = Owner(threads), Owner(threads)
    is_ended, end = threading.Event(), other.end

    def work() -> None:
        end.wait(WAIT_S)
        is_ended.set()

    owner.thread.start(owner.work)
    other.thread.start(work)
    del other

    def end_the_other() -> None:
        owner.end.wait(WAIT_S)
        end.set()

    threading.Thread(target=end_the_other).start()
    threads.end()
    assert is_ended.is_set()
    assert owner.has_left
    assert owner.thread.has_ended


def test_after_the_end_nothing_starts() -> None:
    threads = Threads()
    owner = Owner(threads)
    threads.end()
    assert not owner.thread.start(owner.work)
    assert not owner.thread.join()
    assert owner.works == 0


def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent() -> None:
    threads = Threads()
    owner = Owner(threads)
    owner.thread.start(owner.work)
    eventually(lambda: owner.works == 1)
    if (child := os.fork()) == 0:
        threads.end()
        os._exit(7 if owner.has_left else 0)
    assert os.waitpid(child, 0)[1] == 0
    owner.leave()
    owner.thread.join()
