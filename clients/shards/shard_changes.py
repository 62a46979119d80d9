"""ShardChanges: changes of items in a table with shards; each key is sent to its shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.base.checks import check_int
from shmreplay.clients.batches.arguments import check_timeout, key_array, priority_array
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, warn_stale
from shmreplay.clients.shards.shard_calls import by_shard, repeat_on_shards
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.tables.update_data import mutable_arrays
from shmreplay.protocol import Deadline


class ShardChanges:
    """The changes of one table. Each shard is changed by itself, under its own lock."""

    def __init__(self, where: str, shards: Sequence[TableHandle]) -> None:
        self._where = where
        self._shards = shards
        self._warned_stale = False

    def update_priorities(self, keys: ArrayLike, priorities: ArrayLike, timeout_s: float | None) -> int:
        """See `ShardedTable`."""
        wanted = key_array(self._where, keys)
        values = priority_array(self._where, priorities, len(wanted))
        deadline = Deadline(check_timeout(timeout_s))

        def update(natives: list[_core.Table]) -> tuple[int, int, int]:
            status, updated, number, bad = _core.update_shards(natives, wanted, values, deadline.remaining_s())
            if bad >= 0:
                raise ValueError(f"{self._where}: priorities[{bad}] is {values[bad]}; {EXPECTED_PRIORITY}")
            return status, number, updated

        # After a fork all shards are updated again: those that were updated before get the same priorities once more.
        updated = repeat_on_shards(self._shards, "update_priorities", timeout_s, update)
        self._warn_if_stale("update_priorities", updated, len(wanted))
        return updated

    def update_data(self, keys: ArrayLike, values: Any, at: int, timeout_s: float | None) -> int:
        """See `ShardedTable`."""
        first = self._shards[0]
        wanted = key_array(self._where, keys)
        at = check_int(self._where, "at", at, 0)
        columns = mutable_arrays(first._sig, values, len(wanted))
        deadline, end = Deadline(check_timeout(timeout_s)), at + columns[0][1].shape[1]
        for number, _ in by_shard(wanted, len(self._shards)):
            self._shards[number]._check_places(at, end, deadline.remaining_s())

        def change(mine: NDArray[np.intp], left: float | None, native: _core.Table) -> tuple[int, int]:
            status, updated = native.update_data(
                wanted[mine], [(column, array[mine]) for column, array in columns], at, left
            )
            return status, updated

        updated = self._change("update_data", wanted, change, deadline.remaining_s())
        self._warn_if_stale("update_data", updated, len(wanted))
        return updated

    def delete(self, keys: ArrayLike, timeout_s: float | None) -> int:
        """See `ShardedTable`."""
        wanted = key_array(self._where, keys)

        def change(mine: NDArray[np.intp], left: float | None, native: _core.Table) -> tuple[int, int]:
            status, deleted = native.delete(wanted[mine], left)
            return status, deleted

        return self._change("delete", wanted, change, timeout_s)

    def _warn_if_stale(self, call: str, updated: int, asked: int) -> None:
        if updated == 0 and asked > 0 and not self._warned_stale:
            self._warned_stale = True
            warn_stale(self._where, call, asked, stacklevel=5)

    def _change(
        self,
        call: str,
        keys: NDArray[np.int64],
        change: Callable[[NDArray[np.intp], float | None, _core.Table], tuple[int, int]],
        timeout_s: float | None,
    ) -> int:
        """Changes shard by shard; returns how many items were there."""
        deadline, total = Deadline(check_timeout(timeout_s)), 0
        self._shards[0]._check_open()  # also if no shard has any of the keys
        for number, mine in by_shard(keys, len(self._shards)):
            attempt = partial(change, mine, deadline.remaining_s())
            total += self._shards[number]._repeat(call, timeout_s, attempt)
        return total
