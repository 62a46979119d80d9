"""Ahead: a thread that makes batches before they are asked for. It ends with its sampler, even while it waits."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from shmreplay.clients.handles.handle import Stop
from shmreplay.clients.link.connection import fork_count
from shmreplay.errors import RateLimitTimeout

B = TypeVar("B")


@dataclass
class Failure:
    """The error of an attempt to make a batch, and when the attempt began (`time.monotonic()`)."""

    error: BaseException
    began: float


class Ahead(Generic[B]):
    """A thread that makes batches, and the batches that are ready.

    It has no reference to its sampler, so that a sampler that is left can be collected as garbage.
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
        self._changed = threading.Condition()  # its RLock lets a finalizer run in a thread that holds it
        self._ready = deque[B | Failure]()
        self._thread: threading.Thread | None = None
        self._is_over = False  # if True, take() returns None
        _threads.add(self)

    @property
    def is_own(self) -> bool:
        """Whether its thread belongs to this process, not to the parent of a fork."""
        return self._fork_count == fork_count()

    def take(self) -> B | None:
        """Returns the next batch; None after `end`. If the attempt to make it failed, raises that error."""
        began = time.monotonic()
        with self._changed:
            if self._thread is None and not self._is_over:
                self._thread = threading.Thread(target=self._run, name="shmreplay-sampler", daemon=True)
                self._thread.start()
            while True:
                self._changed.wait_for(lambda: self._ready or self._is_over)
                if self._is_over:
                    return None
                outcome = self._ready.popleft()
                self._next_timeout_s = self._timeout_s
                self._changed.notify_all()
                if not isinstance(outcome, Failure):
                    return outcome
                if not self._is_late(outcome, began):
                    try:
                        raise outcome.error
                    finally:
                        del outcome  # else error and frame would refer to each other

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
            self._end_thread()

    def _end_thread(self) -> None:
        self._stop.is_set = True
        with self._changed:
            self._changed.notify_all()
        self._end_waits()

    def leave(self) -> None:
        """Ends the thread, because Python exits. Daemon threads blocked in `take` stay blocked, as in other calls."""
        if self.is_own:
            self._end_thread()

    def join(self) -> None:
        """Waits for the thread's end, and drops the batches that are ready."""
        if self.is_own and self._thread is not None:
            self._thread.join()
            self._ready.clear()

    def _has_room(self) -> bool:
        if self._stop.is_set:
            return True
        return len(self._ready) < self._prefetch and not (self._ready and isinstance(self._ready[-1], Failure))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_room)
                if self._stop.is_set:
                    return
                timeout_s = self._next_timeout_s
            self._append(self._attempt(timeout_s))

    def _attempt(self, timeout_s: float | None) -> B | Failure:
        began, drawn = time.monotonic(), list[Any]()
        try:
            return self._draw(timeout_s, drawn)
        except BaseException as error:  # noqa: BLE001  # whatever it is, next() raises it
            if drawn:
                error.batch = drawn[-1]  # type: ignore[attr-defined]
            return Failure(error, began)

    def _append(self, outcome: B | Failure) -> None:
        with self._changed:
            if not self._stop.is_set:
                self._ready.append(outcome)
            self._changed.notify_all()


_threads = weakref.WeakSet[Ahead[Any]]()


def end_all() -> None:
    """Ends all these threads of this process, because Python exits, and waits for their end."""
    own = list(_threads)
    for ahead in own:
        ahead.leave()
    for ahead in own:
        ahead.join()


atexit.register(end_all)  # otherwise Python would stop the threads at any point when it exits
