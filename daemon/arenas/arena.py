"""ManagedArena: an arena in the daemon, with two descriptors, a mapping, and the specs of its tables."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence

from shmreplay import _core
from shmreplay.errors import SegmentFailed, TableNotFound
from shmreplay.tables.table import Table

log = logging.getLogger("shmreplayd")

STOP_TIMEOUT_S = 5.0  # for an arena's lock; if its holder is stopped, the arena is removed without it


class ManagedArena:
    """Owns the descriptors it is made with.

    Callers hold `lock` while they wait inside the arena, one at a time: if the holder of the arena's own lock is
    stopped, only one thread of the daemon is blocked.
    """

    def __init__(self, name: str, tables: Sequence[Table], index_fd: int, data_fd: int) -> None:
        self.name = name
        self.tables = list(tables)
        self.fds = (index_fd, data_fd)
        self.sizes = (os.fstat(index_fd).st_size, os.fstat(data_fd).st_size)
        self.huge_bytes = sum(map(_core.huge_bytes_of, self.fds, self.sizes))
        self.native = _core.Arena(index_fd, data_fd)
        self.lock = asyncio.Lock()
        self.is_locked_in_memory = self.native.mlock_index()
        self.failure: str | None = None
        self._is_closed = False
        self._closing = (
            threading.Lock()
        )  # held while descriptors are used: a closed one may already belong to another file

    def is_usable(self) -> bool:
        """Whether the mapping may be touched. If somebody has truncated a segment, touching it would raise SIGBUS."""
        with self._closing:
            return not self._is_closed and self._is_whole()

    def _is_whole(self) -> bool:
        for kind, fd, size in zip(("index", "data"), self.fds, self.sizes, strict=True):
            found = os.fstat(fd).st_size
            if found != size and self.failure is None:
                self.failure = (
                    f"arena {self.name!r} has failed: its {kind} segment has {found} bytes instead of {size}: "
                    "another process truncated it; drop its tables and create them again"
                )
                log.error("%s", self.failure)
        return self.failure is None

    def check_usable(self) -> None:
        """Raises SegmentFailed if the mapping must not be touched, TableNotFound if the arena was dropped."""
        if self.is_usable():
            return
        if self.failure is None:
            raise TableNotFound(f"arena {self.name!r} was dropped a moment ago")
        raise SegmentFailed(self.failure)

    def describe_wait(self) -> str:
        """Says what a call on this arena waits for."""
        holder = self.lock_holder_pid()
        if holder is None:
            return f"waiting for earlier calls on arena {self.name!r}"
        return f"waiting for the lock of arena {self.name!r}, held by process {holder}; is it stopped?"

    def lock_holder_pid(self) -> int | None:
        """The process that holds the arena's lock at this moment."""
        holder = self.native.lock_holder() if self.is_usable() else None
        return holder["pid"] if isinstance(holder, dict) else None

    @property
    def is_unlinked(self) -> bool:
        """Whether a segment's name was removed, as by logind with RemoveIPC=yes: the next daemon will not find it."""
        with self._closing:
            return self._is_closed or any(os.fstat(fd).st_nlink == 0 for fd in self.fds)

    def duplicate_fds(self) -> list[int]:
        """Duplicates the descriptors, to send them: a drop may close the originals while a slow client waits."""
        first = os.dup(self.fds[0])
        try:
            return [first, os.dup(self.fds[1])]
        except OSError:
            os.close(first)
            raise

    def close(self) -> None:
        """Closes the descriptors. The mapping lives on while a thread still reads from it."""
        with self._closing:
            self._is_closed = True
            for fd in self.fds:
                os.close(fd)
