"""Ahead: a thread that makes batches before they are asked for. It ends with its sampler, even while it waits."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from shmreplay.base.own_thread import OwnThread, Threads
from shmreplay.clients.handles.handle import Stop
from shmreplay.clients.link.connection import fork_count
from shmreplay.errors import RateLimitTimeout

LOOK_S = 1.0  # how often `take` looks whether all is over, should an interrupt have taken the news

B = TypeVar("B")

_threads = Threads()
atexit.register(_threads.end)  # otherwise Python would stop the threads at any point when it exits
end_all = _threads.end  # for whoever must have them end before its own end


@dataclass
class Taken:
    """Whether a caller has an error, and the timeout of the next attempt is decided."""

    is_set: bool = False


@dataclass
class Failure:
    """The error of an attempt to make a batch, when the attempt began (`time.monotonic()`), and whether it was taken.

    Before it was, there is no other attempt.
    """

    error: BaseException
    began: float
    taken: Taken = field(default_factory=Taken)


class Ahead(Generic[B]):
    """A thread that makes batches, and the batches that are ready.

    It has no reference to its sampler, so that a sampler that is left can be collected as garbage. There is no lock:
    each step leaves it in a state from which `take` goes on, so a signal handler may raise between any two, and may
    itself call `end`.
    """

    def __init__(
        self,
        draw: Callable[[float | None, list[Any]], B],
        end_waits: Callable[[], None],
        stop: Stop,
        prefetch: int,
        timeout_s: float | None,
    ) -> None:
        """Starts no thread yet.

        Args:
            draw: makes a batch: see `Draws`.
            end_waits: called in another thread, ends a wait in `draw` at once.
            stop: set when the sampler ends.
            prefetch, timeout_s: as of the sampler.
        """
        self._draw = draw
        self._end_waits = end_waits
        self._stop = stop
        self._prefetch = prefetch
        self._timeout_s = timeout_s
        self._next_timeout_s = timeout_s  # of the next attempt
        self._fork_count = fork_count()
        self._ready = SimpleQueue[B | Failure | None]()  # None: the end
        self._looks = SimpleQueue[None]()  # has the thread look for room, or for the end
        self._error_taken = Taken(True)  # of the newest attempt
        self._is_over = False  # if True, take() returns None
        self._thread = OwnThread(_threads, self, "shmreplay-sampler", "end other threads, or use prefetch=0")

    @property
    def is_own(self) -> bool:
        """Whether its thread belongs to this process, not to the parent of a fork."""
        return self._fork_count == fork_count()

    def take(self) -> B | None:
        """Returns the next batch; None after `end`. If the attempt to make it failed, raises that error.

        While Python exits, there is no thread. The main thread then makes the batch itself, and daemon threads stay
        blocked, as in other calls.

        Raises ShmReplayError if the system gives no thread.
        """
        began = time.monotonic()
        while not self._is_over:
            if not self._thread.start(self._run) and threading.current_thread() is threading.main_thread():
                return self._draw(self._timeout_s, [])
            if self._ready.empty():  # an interrupt may have kept an earlier call from what follows `get`
                self._error_taken.is_set = True
            self._looks.put(None)
            try:
                outcome = self._ready.get(timeout=LOOK_S)
            except Empty:
                continue
            if outcome is None:
                self._ready.put(None)  # for the others that wait
                continue
            self._next_timeout_s = self._timeout_s
            if not isinstance(outcome, Failure):
                self._looks.put(None)
                return outcome
            is_late = self._is_late(outcome, began)
            outcome.taken.is_set = True
            self._looks.put(None)
            if not is_late:
                try:
                    raise outcome.error
                finally:
                    del outcome  # else error and frame would refer to each other
        return None

    def _is_late(self, failure: Failure, began: float) -> bool:
        """Whether `take` ignores a timeout, because the attempt began before the call and the call has time left.

        The next attempt then gets the time that is left.
        """
        if not isinstance(failure.error, RateLimitTimeout) or failure.began >= began or self._timeout_s is None:
            return False
        left = self._timeout_s - (time.monotonic() - began)
        if left <= 0 < self._timeout_s:
            return False
        self._next_timeout_s = max(left, 0.0)
        return True

    def end(self) -> None:
        """Ends the thread, at once if it waits, and every `take`. Does nothing in a forked child, which has none."""
        if self.is_own:
            self._is_over = True
            self.leave()
            self._ready.put(None)

    def leave(self) -> None:
        """See `Owner`. Does nothing in a forked child."""
        if self.is_own:
            self._stop.is_set = True
            self._looks.put(None)
            self._end_waits()

    def join(self) -> None:
        """Waits for the thread's end, and drops the batches that are ready."""
        if self.is_own:
            self._thread.join()
            self.left()

    def left(self) -> None:
        """See `Owner`: drops the batches that are ready."""
        for _ in range(self._ready.qsize()):
            with suppress(Empty):
                self._ready.get_nowait()
        if self._is_over:
            self._ready.put(None)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_for_room():
            outcome = self._attempt(self._next_timeout_s)
            if self._stop.is_set:
                return
            self._ready.put(outcome)
            self._error_taken = outcome.taken if isinstance(outcome, Failure) else Taken(True)
            del outcome  # the caller's alone: its arrays are used again when nobody refers to them

    def _wait_for_room(self) -> bool:
        """Waits until another batch is to be made. Returns False at the end."""
        while not self._stop.is_set:
            for _ in range(self._looks.qsize()):
                self._looks.get_nowait()  # nobody else takes them
            if self._error_taken.is_set and self._ready.qsize() < self._prefetch:
                return True
            self._looks.get()
        return False

    def _attempt(self, timeout_s: float | None) -> B | Failure:
        began, drawn = time.monotonic(), list[Any]()
        try:
            return self._draw(timeout_s, drawn)
        except BaseException as error:  # noqa: BLE001  # whatever it is, next() raises it
            if drawn:
                error.batch = drawn[-1]  # type: ignore[attr-defined]
            return Failure(error, began)
