"""Params: publishes versions of a tree of arrays in a table of one item, and reads the newest version."""

from __future__ import annotations

import time
from typing import Any, NoReturn

from shmreplay import _core
from shmreplay.clients.batches.arguments import check_count, check_timeout
from shmreplay.clients.handles.handle import Handle
from shmreplay.clients.handles.unattached import unattached
from shmreplay.clients.params.layout import ParamsLayout
from shmreplay.clients.params.leaves import to_host
from shmreplay.clients.params.snapshot import Snapshot
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns.conversion import column_array, flatten
from shmreplay.errors import RateLimitTimeout
from shmreplay.protocol import Deadline
from shmreplay.tables.table import Table

_MAX_VERSION = 2**63 - 1


def table(name: str, tree: Any, *, max_publishers: int = 2, max_sessions: int = 1024) -> Table:
    """Returns the table for `Params` of that tree. Create it like any other table.

    It has room for 9 versions if one takes 32 MiB or more, for 23 if one takes 4 MiB or less, and for 3 more for each
    publisher beyond two: for the newest version, those being written, and old ones that are still read.

    Args:
        name: as of `Table`.
        tree: nested dicts, lists, tuples and named tuples of arrays, tensors or `ArraySpec`s; a `state_dict()` is one.
            Only its shapes and dtypes are used. If it has more than 124 arrays, those of a dtype share a column; then
            `Params` needs the tree, and publishing copies it twice.
        max_publishers: how many processes may publish. The second one of the default can replace a publisher that died.
        max_sessions: as of `Table`.

    Raises:
        TypeError, ValueError: as `Table`.
    """
    return Table(
        name,
        ParamsLayout.of_tree(tree, name).signature(),
        1,
        chunk_steps=1,
        on_full="wait",
        max_streams=max_publishers,
        max_sessions=max_sessions,
    )


class Params:
    """A tree of arrays that is published in versions. Safe to use from threads, after a fork and, pickled, in other
    processes.

    Versions are numbered from 1 on, across all publishers. Numbering goes on after any process ends and after a
    restored checkpoint; it ends with the table. If a publisher dies while it publishes, the version before stays the
    newest. If a reader dies, the memory of what it read is freed.

    Args:
        table: a handle of a table that `shmreplay.clients.params.table` made.
        like: the tree that the table was made for, needed if it has more than 124 arrays. Only its shapes and dtypes
            are used.

    Raises:
        TypeError: `table` is not a handle of a table.
        ValueError: the table was not made for `Params`; or `like` is missing but needed, or is another tree.
    """

    def __init__(self, table: TableHandle, like: Any = None) -> None:
        if not isinstance(table, Handle):
            raise TypeError(f"Params: table is {type(table).__name__}; expected a handle, client.table(name)")
        self._table = table
        layout = ParamsLayout.of_table(table.spec.sig, like)
        if layout is None or table.spec.max_size != 1 or table._arena.num_tables != 1:
            raise ValueError(
                f"Params: table {table.name!r} is not one of a tree's versions; create it as "
                "shmreplay.clients.params.table(name, tree)"
            )
        self._layout = layout

    @property
    def version(self) -> int:
        """The number of the newest version, 0 if there is none. Read without the lock.

        It may be the number of a version that is still being published. If its publisher dies then, the next version
        gets the same number.
        """
        return self._table._control().num_inserts

    def publish(self, tree: Any, timeout_s: float | None = None) -> int:
        """Makes the tree the newest version. Readers of older versions keep them.

        The arrays are copied; the caller may change them again when this returns, and not before.

        Args:
            tree: arrays or tensors in the table's structure, each of its dtype and shape. Tensors may require a
                gradient; tensors on a GPU are copied to the host first.
            timeout_s: seconds to wait for memory, while readers hold all older versions.

        Returns:
            The version's number.

        Raises:
            RateLimitTimeout: all memory is used by versions that are still read; the newest version stays the newest.
            SignatureMismatch: the tree does not match the table's; the text names the array.
        """
        where, layout = f"{self._table._where}: publish", self._layout
        arrays = [
            column_array(to_host(value), leaf, where, None)
            for value, leaf in zip(flatten(layout.node, tree, where), layout.leaves, strict=True)
        ]
        steps = layout.steps(arrays, time.time_ns())
        # As a batch of one, because a batch is copied without the GIL, unlike a step; weights may be large.
        (key,) = self._table.insert_batch(steps, timeout_s=timeout_s)

        def number_of(native: _core.Table) -> tuple[int, int]:
            status, number = native.insert_number(int(key), None)
            return status, number

        return self._table._repeat("publish", None, number_of)

    def latest(self, min_version: int | None = None, timeout_s: float | None = None) -> Snapshot:
        """The newest version, without a copy. Waits until there is one that is new enough.

        Use it as a context manager, and not for long: while it is read, its memory cannot be used for new versions.

        Args:
            min_version: the smallest acceptable number, such as that of the last version plus 1. None: any.
            timeout_s: seconds to wait for it.

        Raises:
            RateLimitTimeout: there was no such version in time; the text says which is the newest.
            TableClosed: the table was dropped.
            TypeError, ValueError: min_version is not an integer, or below 1.
        """
        if min_version is not None:
            check_count(self._table._where, "min_version", min_version, _MAX_VERSION)
        wanted, deadline = min_version or 1, Deadline(check_timeout(timeout_s))
        self._wait_for(wanted, deadline)
        # From here on only that version or a newer one can be read: the table has one item.
        view = self._table.view(1, deadline.remaining_s())
        try:
            return Snapshot(view, self._layout)
        except BaseException:
            view.release()
            raise

    def _wait_for(self, version: int, deadline: Deadline) -> None:
        def wait(native: _core.Table) -> tuple[int, None]:
            status, newest = native.wait_for_insert(version - 1, deadline.remaining_s())
            if status == _core.STATUS_TIMEOUT:
                self._raise_timeout(version, newest, deadline)
            return status, None

        self._table._repeat("latest", deadline.timeout_s, wait)

    def _raise_timeout(self, version: int, newest: int, deadline: Deadline) -> NoReturn:
        last = self._table._native.info()["last_insert_s_ago"]
        there = f"the newest is {newest}, published {last:.0f} s ago" if last is not None else "none was ever published"
        raise RateLimitTimeout(
            f"{self._table._where}: latest: no version {version} or newer within {deadline.timeout_s} s: {there}; "
            "publish(tree), here or in another process, lets it go on"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return unattached, (Params, repr(self), Params, self._table, self._layout.like)

    def __repr__(self) -> str:
        return f"<Params of {self._table!r}>"
