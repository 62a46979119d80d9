"""Workers: threads for calls that block, such as waits for arena locks, reservations and page faults.

The event loop itself never blocks.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")

NUM_THREADS = 64  # an arena whose lock is held by a stopped process blocks one of them


class Workers:
    """A pool of threads whose calls the event loop awaits."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="shmreplayd")
        self._num_running = 0

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Runs the function on a thread; returns or raises what it does."""
        self._num_running += 1
        future = self._pool.submit(function, *arguments)
        future.add_done_callback(functools.partial(self._done, asyncio.get_running_loop()))
        return await asyncio.wrap_future(future)

    def _done(self, loop: asyncio.AbstractEventLoop, future: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._count_down)

    def _count_down(self) -> None:
        self._num_running -= 1

    def close(self) -> bool:
        """Takes no more work. Returns False if a thread is still running: one that waits for a lock cannot be ended."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return self._num_running == 0
