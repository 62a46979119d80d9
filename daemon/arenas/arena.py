"""ManagedArena: an arena in the daemon, with two descriptors, a mapping, and the specs of its tables."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from shmreplay import _core
from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import LockTimeout, SegmentFailed, TableNotFound
from shmreplay.protocol import Deadline
from shmreplay.tables.table import Table

log = logging.getLogger("shmreplayd")

STOP_TIMEOUT_S = 5.0  # for an arena's lock; if its holder is stopped, the arena is removed without it
TURN_S = 1.0  # how long a call may wait for the arena's lock while other calls of the daemon wait for their turn
Result = TypeVar("Result")


class ManagedArena:
    """Owns the descriptors it is made with.

    Calls that wait for the arena's lock take turns: if the holder of that lock is stopped, only one thread of the
    daemon is blocked. A turn is short, so a call without a timeout does not keep a later one from its own.
    """

    def __init__(self, name: str, tables: Sequence[Table], index_fd: int, data_fd: int) -> None:
        self.name = name
        self.tables = list(tables)
        self.fds = (index_fd, data_fd)
        self.sizes = (os.fstat(index_fd).st_size, os.fstat(data_fd).st_size)
        self.huge_bytes = sum(map(_core.huge_bytes_of, self.fds, self.sizes))
        self.native = _core.Arena(index_fd, data_fd)
        self._turn = asyncio.Lock()
        self.is_locked_in_memory = self.native.mlock_index()
        self.failure: str | None = None
        self.gone: set[tuple[str, str]] = set()  # sides and tables whose users all are gone, as of the last look
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

    async def in_turn(self, workers: Workers, deadline: Deadline, call: Callable[[float], Result]) -> Result:
        """Runs `call(seconds)` on a worker, which waits so long for the arena's lock; again and again until it gets it.

        Raises LockTimeout if it has not got it at the deadline.
        """
        while True:
            try:
                await within(deadline.remaining_s(), self._turn.acquire())
            except TimeoutError:
                raise self._locked_out(deadline) from None
            try:
                remaining_s = deadline.remaining_s()
                return await workers.run(call, TURN_S if remaining_s is None else min(TURN_S, remaining_s))
            except LockTimeout as error:
                if deadline.is_over:
                    raise self._locked_out(deadline) from error
            finally:
                self._turn.release()

    def _locked_out(self, deadline: Deadline) -> LockTimeout:
        holder = self.lock_holder_pid()
        who = "other calls have" if holder is None else f"process {holder} has"
        return LockTimeout(
            f"arena {self.name!r}: {who} kept the arena's lock for all of timeout_s={deadline.timeout_s:g}; is a "
            "process stopped? Continue it (SIGCONT), or kill it"
        )

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
