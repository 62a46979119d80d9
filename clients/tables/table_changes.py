"""TableChanges: the calls of a table that change or delete its items."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from shmreplay import _core
from shmreplay.base.checks import check_int
from shmreplay.clients.batches.arguments import key_array, priority_array
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, Handle
from shmreplay.clients.tables.update_data import declared_steps, known_steps, mutable_arrays


class TableChanges(Handle):
    """Changes of items, by their keys."""

    def update_priorities(self, keys: ArrayLike, priorities: ArrayLike, timeout_s: float | None = None) -> int:
        """Gives items new priorities. Keys of items that were removed are skipped, even if others took their place.

        Args:
            keys: int64 `[B]`, as `batch.keys`.
            priorities: `[B]` or `[B, 1]`, finite, >= 0, of any real dtype.

        Returns:
            How many of the items still exist. The first call that finds none of them warns.

        Raises:
            ValueError: a priority is negative or not finite (nothing was changed), or there are not as many as keys.
            TypeError: the keys are not int64.
        """
        wanted = key_array(self._where, keys)
        values = priority_array(self._where, priorities, len(wanted))

        def update(native: _core.Table) -> tuple[int, int]:
            status, updated, bad = native.update_priorities(wanted, values, timeout_s)
            if bad >= 0:
                raise ValueError(f"{self._where}: priorities[{bad}] is {values[bad]}; {EXPECTED_PRIORITY}")
            return status, updated

        updated = self._repeat("update_priorities", timeout_s, update)
        self._warn_if_stale(updated, len(wanted))
        return updated

    def update_data(self, keys: ArrayLike, values: Any, at: int = 0, timeout_s: float | None = None) -> int:
        """Changes stored values of mutable columns. Items share their steps, so all items with a step see the change.

        A reader sees a step's old value or the new one, never a mix, even if this process is killed. Items that were
        removed are skipped, and so is padding.

        Args:
            keys: int64 `[K]`, as `batch.keys`.
            values: the table's structure with arrays `[K, k, *shape]`, with only the mutable columns that are to
                change. Row j is for the step at place `at` + j of the item. Places are counted from 0 as in a batch,
                padding included; an item of one step has only place 0.
            at: the first place, >= 0.
            timeout_s: seconds to wait for the arena's lock.

        Returns:
            How many of the items still exist. The first call that finds none of them warns.

        Raises:
            SignatureMismatch: a value does not fit, or is of a column that is not mutable; nothing was changed.
            TypeError: the keys are not int64.
            ValueError: `at` is out of range, or `at` + k is beyond the table's longest item; nothing was changed.
            RateLimitTimeout: the lock was not free in time; some items may have changed.
        """
        wanted = key_array(self._where, keys)
        at = check_int(self._where, "at", at, 0)
        columns = mutable_arrays(self._sig, values, len(wanted))
        self._check_places(at, at + columns[0][1].shape[1], timeout_s)

        def update(native: _core.Table) -> tuple[int, int]:
            status, updated = native.update_data(wanted, columns, at, timeout_s)
            return status, updated

        updated = self._repeat("update_data", timeout_s, update)
        self._warn_if_stale(updated, len(wanted), "update_data")
        return updated

    def _check_places(self, at: int, end: int, timeout_s: float | None) -> None:
        """Raises ValueError if no item of the table has these places."""
        longest = declared_steps(self._spec)
        if longest is None and end > 1:
            longest = known_steps(*self._structure("update_data", timeout_s), self._native.size)
        if longest is not None and end > longest:
            raise ValueError(
                f"{self._where}: update_data has values for the places {at} to {end - 1}, but the table's longest item "
                f"has {longest} steps; expected at + k <= {longest}"
            )

    def delete(self, keys: ArrayLike, timeout_s: float | None = None) -> int:
        """Deletes items. Keys of items that were removed already are skipped.

        Args:
            keys: int64 `[K]`, as `batch.keys`.
            timeout_s: seconds to wait for the arena's lock.

        Returns:
            How many items it deleted.

        Raises:
            TypeError: the keys are not int64.
        """
        wanted = key_array(self._where, keys)

        def delete(native: _core.Table) -> tuple[int, int]:
            status, deleted = native.delete(wanted, timeout_s)
            return status, deleted

        return self._repeat("delete", timeout_s, delete)
