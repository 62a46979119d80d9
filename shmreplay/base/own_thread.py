"""Threads of this package: Python waits for them when it exits, and an interrupt at a start leaves nothing half."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from shmreplay.errors import ShmReplayError


class Owner(Protocol):
    """The object that a thread works for."""

    def leave(self) -> None:
        """Has the thread end soon, because Python exits. Called by another thread."""

    def left(self) -> None:
        """Called when the thread has ended."""


class Threads:
    """The threads of one kind in this process. `end`, which belongs into `atexit`, waits for all of them.

    Python does not wait for daemon threads. One that drops the last reference to an object while Python ends can be
    ended by Python in the middle of that object's end, within native code, which aborts the process. So threads are
    kept here until they have ended, also those whose owner is gone.
    """

    def __init__(self) -> None:
        self._kept: dict[int, threading.Thread] = {}  # by identity
        self._owners = WeakValueDictionary[int, Owner]()  # by identity
        self.are_over = False  # whether `end` was called: no thread begins to work any more
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A forked child has none of the parent's threads."""
        self._kept, self._owners = {}, WeakValueDictionary()

    def _keep(self, thread: threading.Thread) -> None:
        for identity, kept in list(self._kept.items()):
            if kept.ident is not None and not kept.is_alive():  # without an ident it has not begun, or never will
                self._kept.pop(identity, None)
        self._kept[id(thread)] = thread

    def end(self) -> None:
        """Ends all threads, because Python exits, and waits for their end."""
        self.are_over = True
        owners = [owner for reference in self._owners.valuerefs() if (owner := reference()) is not None]
        for owner in owners:
            owner.leave()
        for thread in list(self._kept.values()):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()
        for owner in owners:
            owner.left()


class OwnThread:
    """At most one thread, which works for an owner.

    While Python starts a thread, a signal handler may raise, and then nobody knows whether there is a thread. So
    `start` may be called again. Whichever thread first enters itself here does the work, and the others end at once.
    """

    def __init__(self, threads: Threads, owner: Owner, name: str, remedy: str) -> None:
        """`name`: of the thread. `remedy`: for the error, what to do where the system gives no thread."""
        self._threads = threads
        self._name = name
        self._remedy = remedy
        self._worker: dict[str, threading.Thread | None] = {}  # who works; None: nobody ever will
        threads._owners[id(owner)] = owner

    def start(self, work: Callable[[], None]) -> bool:
        """Starts the thread unless one works or has worked. Returns False if there is none, because Python exits.

        Raises ShmReplayError if the system gives no thread. A later call tries again.
        """
        if self._threads.are_over:
            return False
        if self._worker:
            return True
        task = [(self, work)]  # the thread takes it out, so that nobody else has a reference to it
        thread = threading.Thread(target=_run, args=(task,), name=self._name, daemon=True)
        self._threads._keep(thread)
        try:
            thread.start()
        except RuntimeError as error:
            task.clear()
            self._threads._kept.pop(id(thread), None)
            raise ShmReplayError(f"{self._name}: {error}; {self._remedy}") from error
        except BaseException:
            task.clear()  # from here on the thread, if there is one, does nothing
            raise
        return True

    @property
    def has_ended(self) -> bool:
        """Whether no thread works any more, nor ever will."""
        if not self._worker:
            return False
        worker = self._worker["it"]
        return worker is None or not worker.is_alive()

    def join(self) -> bool:
        """Waits for the end of the thread. One that has not begun to work never will. Returns whether one worked."""
        worker = self._worker.setdefault("it", None)
        if worker is not None and worker is not threading.current_thread():
            worker.join()
        return worker is not None


def _run(task: list[tuple[OwnThread, Callable[[], None]]]) -> None:
    try:
        own, work = task.pop()
    except IndexError:  # whoever started it was interrupted, and has given it up
        return
    if not own._threads.are_over and own._worker.setdefault("it", (me := threading.current_thread())) is me:
        work()
