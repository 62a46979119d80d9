"""Row threads: a few threads of this process that share the work of decoding many rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

NUM_THREADS = min(4, os.cpu_count() or 1)
WORTH_BYTES = 1 << 20  # below that, handing work over costs more than it saves

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def for_each_row(work: Callable[[int], object], count: int, num_bytes: int) -> None:
    """Calls `work(i)` for i in 0 .. count - 1, by several threads if `num_bytes` of results are worth it.

    Raises the error of a call that fails; then some of the other calls may not have been made.
    """
    if NUM_THREADS == 1 or num_bytes < WORTH_BYTES or count < 2:
        for i in range(count):
            work(i)
        return

    def share(first: int) -> None:
        for i in range(first, count, NUM_THREADS):
            work(i)

    for _ in _threads().map(share, range(NUM_THREADS)):
        pass  # the iterator raises the error of a share


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="shmreplay-rows")
        return _pool


def _after_fork() -> None:
    global _lock, _pool
    # A child has none of the parent's threads, and one of those may have held the lock during the fork.
    _lock, _pool = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork)
