"""The segments that this process has page-locked: each once a GPU, shared by all who read there, undone by the last."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.page_lock import PageLock, State


class Segment(Protocol):
    """A mapped arena: `_core.Arena`."""

    @property
    def name(self) -> str: ...

    @property
    def data_address(self) -> int:
        """Where its chunks begin."""

    def stats(self) -> dict[str, Any]:
        """Among its figures `num_chunks` and `chunk_bytes`."""


class PageHold:
    """One user's share of the lock of a segment; see `PageLock`. A context manager.

    The last one who closes, or is garbage, has it undone. In a forked child it is the parent's, and closes nothing.
    """

    def __init__(self, shared: _Shared) -> None:
        self._lock = shared.lock
        self._let_go = weakref.finalize(self, _let_go, shared)
        self._let_go.atexit = False  # all locks end then, below

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
        """Lets go. Idempotent. If it was the last hold, nothing is registered any more when it returns."""
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
    """A lock and how many hold it. It keeps its segment mapped."""

    lock: PageLock
    num_holds: int = 1


@dataclass
class _Locks:
    """Those of this process, by the identity of the arena and the number of the GPU; ended ones until they are over."""

    guard: threading.RLock = field(default_factory=threading.RLock)  # a finalizer may run within
    by_place: dict[tuple[int, int], _Shared] = field(default_factory=dict)

    def forget_those_over(self) -> None:
        self.by_place = {place: shared for place, shared in self.by_place.items() if not shared.lock.is_over}


_locks = _Locks()


def hold_pages(device: Device, segment: Segment) -> PageHold:
    """A share of the lock of the segment's chunks for the GPU; the first one begins it, on a thread.

    The segment stays mapped until the lock is undone.

    Raises:
        CudaError: the GPU gives no further handle.
    """
    place = id(segment), device.ordinal
    with _locks.guard:
        shared = _locks.by_place.get(place)
        if shared is not None:
            shared.num_holds += 1  # from here on no finalizer ends it, which one may have done just before
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
    """One hold fewer; the last one ends the lock, without a wait: it may run anywhere, as a finalizer."""
    with _locks.guard:
        shared.num_holds -= 1
        if shared.num_holds == 0:
            shared.lock.end()


def _close_all() -> None:
    """Before Python ends: a thread in the driver while the process goes down under it could crash."""
    with _locks.guard:
        own = list(_locks.by_place.values())
    for shared in own:
        shared.lock.close()


def _after_fork() -> None:
    global _locks
    _locks = _Locks()  # what the parent has locked is the parent's, and a thread of it may have held the guard


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
