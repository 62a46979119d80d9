"""Creation: makes an arena. Checks the room, reserves the segments, formats them; leaves nothing if it fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from shmreplay import _core
from shmreplay.base.host_memory import check_room, show_bytes
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.errors import ShmReplayError
from shmreplay.segments.segment import SegmentStore, reserve, segment_names, set_access
from shmreplay.tables.plan import overlap_hint, plan
from shmreplay.tables.table import Table


class Creation:
    """The creation of one arena. Call `run` in a worker thread; the event loop may read the rest meanwhile."""

    def __init__(
        self, store: SegmentStore, instance: str, arena: str, tables: Sequence[Table], group_id: int | None
    ) -> None:
        self.arena = arena
        self.is_cancelled = False
        self._store = store
        self._instance = instance
        self.tables = tables
        self._group_id = group_id
        self._native = self._plan()
        sizes = _core.plan_arena(self._native)
        self._index_bytes = store.round_up(sizes["index_bytes"])
        self._data_bytes = store.round_up(sizes["data_bytes"])
        if (self._index_bytes, self._data_bytes) != (sizes["index_bytes"], sizes["data_bytes"]):
            raise ShmReplayError(
                f"arena {arena!r} cannot be in {store.directory}: pages there are larger than the 4 KiB that segments "
                "are planned for; use a tmpfs, which has huge pages as well (see docs/performance.md)"
            )
        self._reserved_bytes = 0
        self.refused_huge_pages = 0  # errno of the kernel's refusal to give more huge pages; 0: none

    def _plan(self) -> dict[str, Any]:
        """The plan from which the native code lays out the segments."""
        return plan(self.tables).native()

    @property
    def total_bytes(self) -> int:
        return self._index_bytes + self._data_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes that are still to be reserved."""
        return self.total_bytes - self._reserved_bytes

    def describe(self) -> str:
        """The progress, for the client that waits."""
        return f"arena {self.arena!r}: {show_bytes(self._reserved_bytes)} of {show_bytes(self.total_bytes)} reserved"

    def run(self, promised_bytes: Callable[[], int]) -> ManagedArena:
        """Makes the arena. `promised_bytes` returns what other creations have still to reserve.

        Raises ShmReplayError if there is no room or the name is taken; nothing is left then.
        """
        index_fd, data_fd = self._make(promised_bytes, published=True)
        return self._open(index_fd, data_fd)

    def _open(self, index_fd: int, data_fd: int) -> ManagedArena:
        try:
            return ManagedArena(self.arena, self.tables, index_fd, data_fd)
        except BaseException:
            self._remove((index_fd, data_fd))
            raise

    def _remove(self, fds: Sequence[int]) -> None:
        self._store.remove_arena(self._instance, self.arena)
        for fd in fds:
            os.close(fd)

    def _make(self, promised_bytes: Callable[[], int], *, published: bool) -> tuple[int, int]:
        """Makes both segments and formats them. A later daemon adopts them only if they are `published`."""
        names = ", ".join(repr(table.name) for table in self.tables)
        purpose = f"arena {self.arena!r} (table {names})"
        others = promised_bytes()
        if others:
            purpose += f", beside {show_bytes(others)} for arenas that are being created,"
        hint = overlap_hint(plan(self.tables).terms)
        check_room(self.total_bytes + others, self._store.directory, purpose, hint=hint)
        paths = segment_names(self._instance, self.arena)
        made: list[tuple[str, int]] = []
        try:
            for name, num_bytes in ((paths.index, self._index_bytes), (paths.data, self._data_bytes)):
                fd = self._store.create(name)
                made.append((name, fd))
                self._reserve(fd, num_bytes)
                self._store.pages.check_taken(fd, f"segment {self._store.path(name)}")
                set_access(fd, self._group_id)
            index_fd, data_fd = (fd for _, fd in made)
            _core.format_arena(index_fd, data_fd, self._native, self._instance, self.arena, published)
            return index_fd, data_fd
        except BaseException:
            for name, fd in made:
                self._store.unlink(name)
                os.close(fd)
            raise

    def _reserve(self, fd: int, num_bytes: int) -> None:
        before = self._reserved_bytes

        def progress(done: int) -> None:
            self._reserved_bytes = before + done
            if self.is_cancelled:
                raise ShmReplayError(f"arena {self.arena!r} was not created: the daemon is stopping")

        refused = reserve(fd, num_bytes, progress, self._store.pages)
        self.refused_huge_pages = self.refused_huge_pages or refused
