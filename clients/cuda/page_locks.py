"""The page-locked segments of this process: locked once for each GPU, shared by all users, undone by the last one."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.page_lock import PageLock, State, page_lock_threads


class Segment(Protocol):
    """A mapped arena: `_core.Arena`."""

    @property
    def name(self) -> str: ...

    @property
    def data_address(self) -> int:
        """The address of its first chunk."""

    def stats(self) -> dict[str, Any]:
        """Its figures, `num_chunks` and `chunk_bytes` among them."""


class PageHold:
    """One user's share of the `PageLock` of a segment. A context manager.

    The lock is undone when its last share is closed or collected. In a forked child a share belongs to the parent, and
    closing it does nothing.
    """

    def __init__(self, shared: _Shared) -> None:
        self._lock = shared.lock
        self._let_go = weakref.finalize(self, _let_go, shared)
        self._let_go.atexit = False  # all locks end then

    @property
    def state(self) -> State:
        """As of `PageLock`."""
        return self._lock.state

    @property
    def reason(self) -> str:
        """As of `PageLock`."""
        return self._lock.reason

    @property
    def progress(self) -> float:
        """As of `PageLock`."""
        return self._lock.progress

    def wait(self, timeout_s: float | None = None) -> bool:
        """As of `PageLock`."""
        return self._lock.wait(timeout_s)

    def close(self) -> None:
        """Gives the share up. Idempotent. If it was the last one, nothing is registered any more when this returns."""
        self._let_go()
        if self._lock.state == "closed":
            self._lock.close()

    def __enter__(self) -> PageHold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(eq=False)
class _Shared:
    """A lock and the number of its shares. The lock keeps its segment mapped."""

    lock: PageLock
    num_holds: int = 1


@dataclass
class _Locks:
    """The locks of this process, by arena and number of the GPU. Ended ones stay until they are over."""

    guard: threading.RLock = field(default_factory=threading.RLock)  # reentrant: a finalizer may run in its holder
    by_place: dict[tuple[int, int], _Shared] = field(default_factory=dict)

    def forget_those_over(self) -> None:
        self.by_place = {place: shared for place, shared in self.by_place.items() if not shared.lock.is_over}


_locks = _Locks()


def hold_pages(device: Device, segment: Segment) -> PageHold:
    """Returns a share of the lock of the segment's chunks for the GPU. The first share starts the lock, on a thread.

    The segment stays mapped until the lock is undone.

    Raises:
        CudaError: the GPU gives no further handle.
    """
    place = id(segment), device.ordinal
    with _locks.guard:
        shared = _locks.by_place.get(place)
        if shared is not None:
            shared.num_holds += 1  # from here on no finalizer ends it; one may have done so just before
        if shared is None or shared.lock.state == "closed":
            shared = _Shared(_lock(device, segment, None if shared is None else shared.lock))
            _locks.forget_those_over()
            _locks.by_place[place] = shared
        return PageHold(shared)


def _lock(device: Device, segment: Segment, after: PageLock | None) -> PageLock:
    stats = segment.stats()
    chunk_bytes = int(stats["chunk_bytes"])
    num_bytes, where = int(stats["num_chunks"]) * chunk_bytes, f"arena {segment.name!r}"
    return PageLock(device, segment.data_address, num_bytes, chunk_bytes, where, keeps=segment, after=after)


def _let_go(shared: _Shared) -> None:
    """Counts one share fewer. The last one ends the lock without waiting, since this may run as a finalizer."""
    with _locks.guard:
        shared.num_holds -= 1
        if shared.num_holds == 0:
            shared.lock.end()


def _after_fork() -> None:
    global _locks
    _locks = _Locks()  # the locks are the parent's, and one of its threads may have held the guard


os.register_at_fork(after_in_child=_after_fork)
atexit.register(page_lock_threads.end)  # a thread that is in the driver while the process exits could crash
