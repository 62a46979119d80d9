"""Row threads: a few threads of this process that share the work of decoding many rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

NUM_THREADS = min(4, os.cpu_count() or 1)
WORTH_BYTES = 1 << 20  # below that, handing work over costs more than it saves

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def for_each_row(work: Callable[[int], object], count: int, num_bytes: int) -> None:
    """Calls `work(i)` for i in 0 .. count - 1, with the help of threads if `num_bytes` of results are worth it.

    The caller does what threads do not: all of it if Python exits, or the system gives no thread. Raises the error of a
    call that fails; then some of the other calls may not have been made, and none is under way.
    """
    rows = iter(range(count))  # each step of it is one step, so each row is taken once

    def share() -> None:
        for i in rows:
            work(i)

    is_worth = num_bytes >= WORTH_BYTES
    helpers = [_begin(share) for _ in range(min(NUM_THREADS, count) - 1)] if is_worth else []
    begun = [helper for helper in helpers if helper is not None]
    try:
        share()
    finally:
        for _ in rows:
            pass  # after an error no other row is begun
        wait([helper for helper in begun if not helper.cancel()])
    for helper in begun:
        if not helper.cancelled():
            helper.result()  # raises its error


def _begin(share: Callable[[], None]) -> Future[None] | None:
    try:
        return _threads().submit(share)
    except RuntimeError:  # should a thread take it up later, no row is left
        return None


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
