"""TableChanges: the calls of a table that change items that are there."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from shmreplay.base.checks import check_int
from shmreplay.clients.batches.arguments import key_array, priority_array
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, Handle
from shmreplay.clients.tables.update_data import declared_steps, known_steps, mutable_arrays


class TableChanges(Handle):
    """What learners change in a table, item by item."""

    def update_priorities(self, keys: ArrayLike, priorities: ArrayLike, timeout_s: float | None = None) -> int:
        """Gives items new priorities. Keys of items that are gone are skipped, whatever took their place.

        Args:
            keys: int64 `[B]`, as `batch.keys`.
            priorities: `[B]` or `[B, 1]`, finite, >= 0, of any real dtype.

        Returns:
            How many were still there. A call that hits none warns once.

        Raises:
            ValueError: a priority is not finite or negative (nothing was changed), or there are not as many as keys.
            TypeError: the keys are not int64.
        """
        wanted = key_array(self._where, keys)
        values = priority_array(self._where, priorities, len(wanted))
        while True:
            self._check_open()
            status, updated, bad = self._native.update_priorities(wanted, values, timeout_s)
            if bad >= 0:
                raise ValueError(f"{self._where}: priorities[{bad}] is {values[bad]}; {EXPECTED_PRIORITY}")
            if status == 0:
                self._warn_if_stale(updated, len(wanted))
                return int(updated)
            if not self._recover(status):
                self._raise_status(status, "update_priorities", timeout_s)

    def update_data(self, keys: ArrayLike, values: Any, at: int = 0, timeout_s: float | None = None) -> int:
        """Changes stored values of mutable columns, for everybody: items share their steps.

        A reader sees a step's old value or the new one, never a mix, whatever becomes of this process. Items that are
        gone are skipped, and so are places that have no real step.

        Args:
            keys: int64 `[K]`, as `batch.keys`.
            values: the table's structure with arrays `[K, k, *shape]` for the mutable columns that are to change, and
                without the others. Row j is for the step at place `at` + j of the item, counted as in a batch, padding
                included; one-step items have place 0 only.
            at: the first place, >= 0.
            timeout_s: seconds to wait for the arena's lock.

        Returns:
            How many items were still there. A call that hits none warns once.

        Raises:
            SignatureMismatch: a value does not fit, or is of a column that is not mutable; nothing was changed.
            TypeError: the keys are not int64.
            ValueError: `at` is out of range, or `at` + k is beyond the table's longest item; nothing was changed.
            RateLimitTimeout: the lock was not to be had in time; some items may have changed.
        """
        wanted = key_array(self._where, keys)
        at = check_int(self._where, "at", at, 0)
        columns = mutable_arrays(self._sig, values, len(wanted))
        self._check_places(at, at + columns[0][1].shape[1], timeout_s)
        while True:
            self._check_open()
            status, updated = self._native.update_data(wanted, columns, at, timeout_s)
            if status == 0:
                self._warn_if_stale(updated, len(wanted), "update_data")
                return int(updated)
            if not self._recover(status):
                self._raise_status(status, "update_data", timeout_s)

    def _check_places(self, at: int, end: int, timeout_s: float | None) -> None:
        """Raises ValueError for places that no item of the table has."""
        longest = declared_steps(self._spec)
        while longest is None and end > 1:
            self._check_open()
            status, names, outputs = self._native.structure(False, False, timeout_s)
            if status == 0:
                longest = known_steps(names, outputs, self._native.size)
                break
            self._recover_or_raise(status, "update_data", timeout_s)
        if longest is not None and end > longest:
            raise ValueError(
                f"{self._where}: update_data has values for the places {at} to {end - 1}, but the table's longest item "
                f"has {longest} steps; expected at + k <= {longest}"
            )

    def delete(self, keys: ArrayLike, timeout_s: float | None = None) -> int:
        """Deletes items; keys of items that are gone are skipped.

        Args:
            keys: int64 `[K]`, as `batch.keys`.
            timeout_s: seconds to wait for the arena's lock.

        Returns:
            How many were still there.

        Raises:
            TypeError: the keys are not int64.
        """
        wanted = key_array(self._where, keys)
        while True:
            self._check_open()
            status, deleted = self._native.delete(wanted, timeout_s)
            if status == 0:
                return int(deleted)
            if not self._recover(status):
                self._raise_status(status, "delete", timeout_s)
