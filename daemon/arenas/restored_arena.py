"""RestoredArena: the creation of an arena from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shmreplay import _core
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.arenas.creation import Creation
from shmreplay.segments.segment import SegmentStore
from shmreplay.tables.packed_specs import pack_specs
from shmreplay.tables.plan import plan
from shmreplay.tables.table import Table

# Sizes that another version might plan differently, so a checkpoint stores them.
GEOMETRY = ("chunk_steps", "num_chunks", "num_blocks", "block_bytes")


class RestoredArena(Creation):
    """An arena that is filled before it is published."""

    def __init__(
        self, store: SegmentStore, instance: str, name: str, tables: Sequence[Table], geometry: Mapping[str, int],
        group_id: int | None,
    ) -> None:  # fmt: skip
        self._geometry = dict(geometry)
        self._fds: tuple[int, int] | None = None
        self._arena: _core.Arena | None = None
        super().__init__(store, instance, name, tables, group_id)

    def _plan(self) -> dict[str, Any]:
        return {**plan(self.tables).native(), **self._geometry, "specs": pack_specs(self.tables)}

    def begin(self, promised_bytes: Callable[[], int]) -> _core.Restorer:
        """Makes the arena, still invisible to clients, and the restorer that fills it. Raises as `run`."""
        self._fds = self._make(promised_bytes, published=False)
        self._arena = _core.Arena(*self._fds, published=False)
        return _core.Restorer(self._arena)

    def set_rate_limiter(self, index: int) -> None:
        """Sets a restored table's rate limiter to that of its specs, rebased."""
        assert self._arena is not None
        limiter = self.tables[index].rate_limiter
        self._arena.table(index).set_rate_limiter(
            limiter.samples_per_insert,
            limiter.min_size_to_sample,
            limiter.min_diff,
            limiter.max_diff,
            limiter.count_deletes,
            rebase=True,
        )

    def publish(self) -> ManagedArena:
        """Makes the arena visible to clients."""
        assert self._arena is not None
        assert self._fds is not None
        self._arena.publish()
        self._arena.close()
        fds, self._fds = self._fds, None
        return self._open(*fds)

    def withdraw(self, managed: ManagedArena) -> None:
        """Removes the arena after it was published, because another arena of the checkpoint failed."""
        self._store.remove_arena(self._instance, self.arena)
        managed.close()

    def discard(self) -> None:
        """Removes an arena that was not published. Does nothing afterwards."""
        if self._fds is not None:
            self._remove(self._fds)
            self._fds = None
