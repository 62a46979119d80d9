"""Workers: threads for calls that block, such as waits for arena locks, reservations and page faults.

The event loop itself never blocks.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")
Work = Callable[[], None]

log = logging.getLogger("shmreplayd")

NUM_THREADS = 64  # an arena whose lock is held by a stopped process blocks one of them
QUIET_S = 60.0  # between two lines about threads that cannot be started
REMEDY = "raise TasksMax= of its unit, pids.max of its cgroup, or ulimit -u"


class Workers:
    """Threads whose calls the event loop awaits. They are started as they are needed."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()  # None ends a thread
        self._threads: list[threading.Thread] = []
        self._num_running = 0
        self._told_at: float | None = None

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Runs the function on a thread; returns or raises what it does.

        If no further thread can be started, it waits for one that there is. Raises OSError if there is none.
        """
        if len(self._threads) <= min(self._num_running, NUM_THREADS - 1):
            self._start_thread()
        future: Future[Result] = Future()
        loop = asyncio.get_running_loop()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*arguments)
            except BaseException as error:  # noqa: BLE001  # whoever awaits it gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        self._num_running += 1
        future.add_done_callback(lambda _: self._done(loop))
        self._work.put(work)
        return await asyncio.wrap_future(future)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work_on, name=f"shmreplayd_{len(self._threads)}")
        try:
            thread.start()
        except RuntimeError as error:  # what Python makes of EAGAIN
            if not self._threads:
                raise OSError(errno.EAGAIN, f"shmreplayd cannot start a thread: {error}; {REMEDY}") from error
            now = time.monotonic()
            if self._told_at is None or now > self._told_at + QUIET_S:
                self._told_at = now
                log.warning(
                    "cannot start a thread: %s; requests wait for one of the %d that there are; %s",
                    error, len(self._threads), REMEDY,
                )  # fmt: skip
        else:
            self._threads.append(thread)

    def _work_on(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # not to keep what it refers to until there is more work

    def _done(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._count_down)

    def _count_down(self) -> None:
        self._num_running -= 1

    def close(self) -> bool:
        """Takes no more work. Returns False if a thread is still running: one that waits for a lock cannot be ended."""
        for _ in self._threads:
            self._work.put(None)
        if self._num_running:
            return False
        for thread in self._threads:
            thread.join()
        return True
