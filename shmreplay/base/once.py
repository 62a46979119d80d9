"""Once: an event that is set once, which handlers of signals may set and wait for."""

from __future__ import annotations

import contextlib
import threading
import time

_SLICE_S = 1.0


class Once:
    """As `threading.Event`, without `clear`.

    `threading.Event` has a lock of its own, which is held for some instructions of `set` and `wait`. A handler that
    runs in between, on the same thread, would wait for that lock for ever. Here the flag comes first: whoever has the
    lock has seen it set, and so has a handler on the same thread.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()  # free once it is set
        self._lock.acquire()

    @property
    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._is_set

    def set(self) -> None:
        """Ends all waits, those of now and of later."""
        self._is_set = True
        self._free()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it is set; None: for ever. Returns whether it is. Ctrl-C ends the wait.

        A waiter that an exception ends may keep the lock, so the others look again after a second.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_set:
            remaining_s = _SLICE_S if deadline is None else min(_SLICE_S, deadline - time.monotonic())
            if remaining_s <= 0:
                break
            if self._lock.acquire(timeout=remaining_s):
                self._free()
        return self._is_set

    def _free(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is free already
            self._lock.release()
