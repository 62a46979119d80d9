"""LastItems: the items that a writer holds back, put in if the writer is never closed."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref

from shmreplay import _core
from shmreplay.clients.handles.attached_client import AttachedClient

logger = logging.getLogger("shmreplay")

EXIT_PRIORITY = 100  # of a child of multiprocessing, which ends by its own list: before its other entries


class LastItems:
    """What becomes of the items that a writer with `commit_every` holds back when nobody calls `close`.

    They go in, as far as the rate limiters admit them at once, when the writer is collected as garbage, when its client
    is closed, and when the process ends other than by a kill or `os._exit`. How many are lost is logged. It has no
    reference to the writer, which can so be collected.
    """

    def __init__(self, native: _core.Writer, where: str) -> None:
        """`where`: the name in log lines."""
        self._native = native
        self._where = where
        self._is_told = False

    def keep(self, writer: object, client: AttachedClient) -> None:
        """Puts the items in at any of these ends."""
        client._add_dependent(self)
        _add(self)
        # At the end of the process they go in earlier than finalizers run: before a server of this process ends.
        weakref.finalize(writer, self.close).atexit = False

    def close(self) -> None:
        """Puts the items in, without waiting. Logs how many are lost. Idempotent."""
        _open.discard(self)
        if self._native.forked or self._native.num_held_back == 0:
            return
        why: object = "the rate limiter does not admit them now"
        try:
            status = self._native.flush(0)
            if isinstance(status, int) and status != _core.STATUS_TIMEOUT:
                why = _core.STATUS_ERRORS[status][1]
        except Exception as error:  # noqa: BLE001  # nobody is there to catch it
            why = error
        self.warn(f"{why}; close the writer, or use it as a context manager")

    def warn(self, why: object) -> None:
        """Logs once how many items are lost, if any, and why."""
        lost = self._native.num_held_back
        if lost > 0 and not self._is_told:
            self._is_told = True
            logger.warning("%s: the writer ends, and %d items that it held back are lost: %s", self._where, lost, why)


_open = set[LastItems]()
_own_process = 0  # the process that has multiprocessing call close_all()


def close_all() -> None:
    """Closes those of all writers of this process that are not closed, because Python exits."""
    for last in list(_open):
        last.close()


def _add(last: LastItems) -> None:
    global _own_process
    _open.add(last)
    atexit.unregister(close_all)
    atexit.register(close_all)  # last, so it is called before the server ends that was started before
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _own_process != os.getpid():
        _own_process = os.getpid()
        util.Finalize(None, close_all, exitpriority=EXIT_PRIORITY)
