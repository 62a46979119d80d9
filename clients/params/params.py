"""Params: publishes versions of a tree of arrays through a table of one item, and reads the newest."""

from __future__ import annotations

import time
from typing import Any, NoReturn

from shmreplay import _core
from shmreplay.clients.batches.arguments import check_count
from shmreplay.clients.client import check_timeout
from shmreplay.clients.handles.handle import Handle
from shmreplay.clients.params.layout import Layout
from shmreplay.clients.params.leaves import to_host
from shmreplay.clients.params.snapshot import Snapshot
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns.conversion import column_array, flatten
from shmreplay.errors import RateLimitTimeout
from shmreplay.protocol import Deadline
from shmreplay.tables.table import Table

_MAX_VERSION = 2**63 - 1


def table(name: str, tree: Any, *, max_publishers: int = 2, max_sessions: int = 1024) -> Table:
    """The table that `Params` of that tree need, to be created like any other.

    Its memory is that of 9 versions where one takes 32 MiB or more, of 23 where it takes 4 MiB or less, and of 3 more
    for each publisher beyond two: the newest, what is being written, and old ones that somebody still reads.

    Args:
        name: as of `Table`.
        tree: nested dicts, lists, tuples and named tuples of arrays, tensors or `ArraySpec`s; a `state_dict()` is one.
            Its values are not looked at. More than 124 arrays share a column a dtype; then `Params` must be told the
            tree, and a publish copies it twice.
        max_publishers: how many processes may publish; a second one is there to go on where one has died.
        max_sessions: as of `Table`.

    Raises:
        TypeError, ValueError: as `Table`.
    """
    return Table(
        name,
        Layout.of_tree(tree, name).signature(),
        1,
        chunk_steps=1,
        on_full="wait",
        max_streams=max_publishers,
        max_sessions=max_sessions,
    )


class Params:
    """A tree of arrays of which there is a newest version. Safe to use from threads and after a fork.

    Versions are numbered from 1 on, by whoever publishes; the numbers outlive every process and a restored checkpoint,
    and end with the table. Who dies while it publishes leaves the version before; who dies as a reader gives its
    memory back.

    Args:
        table: a handle of a table that `shmreplay.clients.params.table` made.
        like: the tree that it was made for, where that has more than 124 arrays; its values are not looked at.

    Raises:
        TypeError: it is no handle of a table.
        ValueError: it is another table's; or `like` is needed, or another tree.
    """

    def __init__(self, table: TableHandle, like: Any = None) -> None:
        if not isinstance(table, Handle):
            raise TypeError(f"Params: table is {type(table).__name__}; expected a handle, client.table(name)")
        self._table = table
        layout = Layout.of_table(table.spec.sig, like)
        if layout is None or table.spec.max_size != 1 or table._arena.num_tables != 1:
            raise ValueError(
                f"Params: table {table.name!r} is not one of a tree's versions; create it as "
                "shmreplay.clients.params.table(name, tree)"
            )
        self._layout = layout

    @property
    def version(self) -> int:
        """The number of the newest version, 0 if there is none: a look without the lock.

        It may be that of a version whose publisher dies before it is there; then the next one has its number.
        """
        return self._table._control().num_inserts

    def publish(self, tree: Any, timeout_s: float | None = None) -> int:
        """Makes the tree the newest version; those who read another one keep that.

        The arrays are copied: when it returns they are the caller's to change, and no sooner.

        Args:
            tree: arrays or tensors in the table's structure, each of its dtype and shape. Tensors may need a gradient;
                those of a GPU are copied to the host first.
            timeout_s: seconds to wait for memory that readers of older versions have.

        Returns:
            The version's number.

        Raises:
            RateLimitTimeout: all versions that there is memory for are still read; the one before stays the newest.
            SignatureMismatch: the tree is not as the table's; the text names the array.
        """
        where, layout = f"{self._table._where}: publish", self._layout
        arrays = [
            column_array(to_host(value), leaf, where, None)
            for value, leaf in zip(flatten(layout.node, tree, where), layout.leaves, strict=True)
        ]
        steps = layout.steps(arrays, time.time_ns())
        # As a batch of one: unlike a step it is copied without the GIL, and weights may be large.
        (key,) = self._table.insert_batch(steps, timeout_s=timeout_s)
        status, number = self._table._native.insert_number(int(key), None)
        if status != 0:
            self._table._raise_status(status, "publish", None)
        return int(number)

    def latest(self, min_version: int | None = None, timeout_s: float | None = None) -> Snapshot:
        """The newest version, without a copy. Waits until there is one, and one that is new enough.

        Use it as a context manager, and not for long: what a reader keeps can not be published into.

        Args:
            min_version: the least number that will do, such as the last one's and one more. None: any.
            timeout_s: seconds to wait for it.

        Raises:
            RateLimitTimeout: there was none in time; the text says which is the newest.
            TableClosed: the table was dropped.
            TypeError, ValueError: min_version is no integer, or below 1.
        """
        if min_version is not None:
            check_count(self._table._where, "min_version", min_version, _MAX_VERSION)
        wanted, deadline = min_version or 1, Deadline(check_timeout(timeout_s))
        self._wait_for(wanted, deadline)
        # Any version that can be seen from here on is at least that one: there is no other item in the table.
        view = self._table.view(1, deadline.remaining_s())
        try:
            return Snapshot(view, self._layout)
        except BaseException:
            view.release()
            raise

    def _wait_for(self, version: int, deadline: Deadline) -> None:
        table = self._table
        while True:
            table._check_open()
            status, newest = table._native.wait_for_insert(version - 1, deadline.remaining_s())
            if status == 0:
                return
            if status == _core.STATUS_TIMEOUT:
                self._raise_timeout(version, newest, deadline)
            table._recover_or_raise(status, "latest", deadline.timeout_s)

    def _raise_timeout(self, version: int, newest: int, deadline: Deadline) -> NoReturn:
        last = self._table._native.info()["last_insert_s_ago"]
        there = f"the newest is {newest}, published {last:.0f} s ago" if last is not None else "none was ever published"
        raise RateLimitTimeout(
            f"{self._table._where}: latest: no version {version} or newer within {deadline.timeout_s} s: {there}; "
            "publish(tree), here or in another process, lets it go on"
        )

    def __repr__(self) -> str:
        return f"<Params of {self._table!r}>"
