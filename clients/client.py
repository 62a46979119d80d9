"""connect() and Client: create, list, open and drop the tables of a daemon, over its control socket."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, cast

from shmreplay.base.checks import check_path
from shmreplay.base.process_names import name_this_process
from shmreplay.clients.handles.attached_client import AttachedClient
from shmreplay.clients.shards.shard_infos import join_shards
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.info import readable_info
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns.specs import MissingPackage
from shmreplay.rate_limiters import RateLimiter, check_limiter
from shmreplay.tables.table import Table, warn_if_never_sampled

logger = logging.getLogger("shmreplay")


def connect(address: str | None = None, timeout_s: float | None = 10, *, name: str | None = None) -> Client:
    """Connects to a daemon. If it is still starting, waits for it up to `timeout_s` seconds (None: for ever).

    Args:
        address: the path of the daemon's socket, with or without `unix:` before it. None tries `$SHMREPLAY_SOCKET`,
            then `$XDG_RUNTIME_DIR/shmreplay/default.sock`, then, of users other than root, `~/.shmreplay/default.sock`,
            then `/run/shmreplay/default.sock`.
        timeout_s: also the limit for later waits, while the daemon restarts.
        name: of this process, 1 to 15 bytes, such as `actor-3`. It is shown by `shmreplay top`, the web page and the
            daemon's log, and also by ps and top, since the kernel keeps it. None: they show the name of the script.

    Raises:
        DaemonUnavailable: no daemon answered in time.
        PermissionError: this user may not connect; the text says who may.
        ValueError: the address is not a socket path, or the name is too long.
        TypeError: the address or the name is not a str.
    """
    if name is not None:
        _name_this_process(name)
    client = Client(address, timeout_s)
    client.connection.connect()
    return client


class Client(AttachedClient):
    """A daemon's tables. Safe to use from threads, after a fork and, pickled, in other processes.

    A new Client connects with its first call; `connect` does it at once. All methods raise DaemonUnavailable when the
    daemon is gone and does not come back within the client's `timeout_s`, and ShmReplayError after `close`. Handles of
    tables work without the daemon.
    """

    # --- tables --------------------------------------------------------------------------------------------------

    def create_tables(self, tables: Iterable[Table], timeout_s: float | None = None) -> None:
        """Creates those of the tables that do not exist yet: all of them, or none.

        Call it in every process: the first call creates the tables, later calls do nothing. Reserving memory takes 0.2
        to 0.7 s a GiB.

        Raises:
            ValueError: a table of that name exists with other specs; the text says where they differ.
            ShmReplayError: there is not enough memory; the text says how much is needed and free, and what to do.
            TimeoutError: not finished within `timeout_s`; the daemon finishes it anyway. It is a ShmReplayError, too.
            TypeError: `tables` is not a list of Tables.
        """
        tables = check_tables("create_tables", tables)
        self._request("create_tables", timeout_s, tables=[table.to_wire() for table in tables])

    def tables(self) -> dict[str, dict[str, Any]]:
        """All tables by name: `spec` (a Table), `arena`, and the figures of its info: size, inserts, samples, ...

        For a table with shards, the figures are those of all shards together, and `arena` is a list.

        Raises:
            SegmentFailed: the figures of a table are impossible; its memory is damaged.
        """
        return join_shards({name: _entry(entry) for name, entry in self._table_entries().items()})

    def _known_tables(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """As `tables`, and why the others cannot be read in this process' environment; these have no `spec`."""
        known, unknown, why = {}, {}, {}
        for name, entry in self._table_entries().items():
            try:
                known[name] = _entry(entry)
            except MissingPackage as error:
                unknown[name] = {**readable_info(entry["info"]), "arena": entry["arena"]}
                why[name] = str(error)
        return {**join_shards(known), **unknown}, why

    def _table_entries(self) -> dict[str, dict[str, Any]]:
        """The daemon's answer."""
        entries: dict[str, dict[str, Any]] = self._request("tables").fields["tables"]
        return entries

    def table(self, name: str, seed: Any = None) -> TableHandle:
        """Returns a handle of a table. For a table with shards it is a `ShardedTable`, which has the same calls.

        `seed` makes its sampling repeatable: an int, a sequence of ints, or a NumPy Generator of yours. A checkpoint
        does not have how far draws were: after a restore, `seed=(7, step)` begins others than those before, and a
        Generator whose state you have saved goes on with them.

        Raises:
            TableNotFound: there is no such table; the text lists the existing ones. This call does not wait for the
                table to be created: call `create_tables` first, in every process.
            LayoutMismatch, SegmentFailed: this version of shmreplay cannot use the table's memory.
            OSError: this process lacks file descriptors or address space; the text names the limit.
        """
        _check_name(name)
        attachment = self._attach(name)
        if (whole := attachment.table.whole) is not None and whole.name == name:
            return cast(TableHandle, ShardedTable(self, whole, seed))
        return TableHandle(self, name, attachment, seed)

    def drop_table(self, name: str, timeout_s: float | None = None) -> None:
        """Drops a table and frees its memory. Calls that wait in it raise TableClosed.

        Raises:
            TableNotFound: there is no such table.
            ShmReplayError: other tables share its arena (use `drop_tables`), or the arena's lock was not free within
                `timeout_s`.
        """
        _check_name(name)
        self._request("drop_table", None, is_repeatable=False, table=name, timeout_s=timeout_s)
        self._forget(name)

    def drop_tables(self, names: Iterable[str], timeout_s: float | None = None) -> None:
        """Drops several tables, one whole arena after the other. Tables that share an arena must be dropped together.

        Raises:
            TableNotFound: one of them does not exist; none is dropped.
            ShmReplayError: a table that is not named shares an arena with one that is: none is dropped. Or an arena's
                lock was not free within `timeout_s`: the tables of the arenas before it are dropped.
            TypeError, ValueError: `names` is not a list of names, or empty.
        """
        if isinstance(names, str):
            raise TypeError(f"drop_tables: expected a list of names, got {names!r}; write [{names!r}]")
        names = list(names)
        for name in names:
            _check_name(name)
        if not names:
            raise ValueError("drop_tables: expected at least one name")
        self._request("drop_tables", None, is_repeatable=False, tables=names, timeout_s=timeout_s)
        for name in names:
            self._forget(name)

    def reset(self, name: str, timeout_s: float | None = None) -> None:
        """Empties a table. Raises TableNotFound."""
        _check_name(name)
        self._request("reset", table=name, timeout_s=timeout_s)

    def set_rate_limiter(
        self, name: str, rate_limiter: RateLimiter, *, rebase: bool = True, timeout_s: float | None = None
    ) -> None:
        """Gives a table another rate limiter. `rebase` sets the difference to the middle of the new bounds.

        Warns:
            UserWarning: its `min_size_to_sample` is more than the table's `max_size`.

        Raises:
            TableNotFound: there is no such table.
            TypeError: it is not a rate limiter.
        """
        _check_name(name)
        check_limiter(f"table {name!r}", rate_limiter)
        wire = rate_limiter.to_wire()
        self._request("set_rate_limiter", table=name, rate_limiter=wire, rebase=rebase, timeout_s=timeout_s)
        if (table := self.tables().get(name)) is not None:
            warn_if_never_sampled(name, table["spec"].max_size, rate_limiter, stacklevel=2)

    def pause(self, name: str, *, inserts: bool = True, samples: bool = True, timeout_s: float | None = None) -> None:
        """Has inserts, samples or both wait until `resume`, as if the rate limiter did not admit them.

        Raises TableNotFound, as `resume` does.
        """
        _check_name(name)
        self._request("pause", table=name, inserts=inserts, samples=samples, timeout_s=timeout_s)

    def resume(self, name: str, timeout_s: float | None = None) -> None:
        """Ends a pause. Does nothing if the table is not paused."""
        _check_name(name)
        self._request("resume", table=name, timeout_s=timeout_s)

    def checkpoint(self, timeout_s: float | None = None, *, on_progress: Callable[[str], None] | None = None) -> str:
        """Saves all tables while they are in use, and returns the path of the file. See docs/checkpoints.md.

        The tables of an arena are saved as they are at one instant. Other calls wait only while the index is copied,
        about 4 ms a million items. `on_progress` is called about once a second with a text that says how far it is.

        Raises:
            CheckpointFailed: it was given up, or the daemon has no checkpoint directory; the text says why.
            OSError: the file could not be written, as on a full disk. Earlier checkpoints are kept.
            TimeoutError: not finished within `timeout_s`; the daemon finishes it anyway. It is a ShmReplayError, too.
        """
        reply = self._request("checkpoint", timeout_s, is_repeatable=False, on_progress=on_progress)
        return str(reply.fields["path"])

    def restore(
        self,
        path: str,
        tables: Iterable[Table] = (),
        *,
        limiters: str = "checkpoint",
        timeout_s: float | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Restores the tables of a checkpoint: all of them, or none. None of them may exist already.

        Args:
            path: a checkpoint, as a path that the daemon can read; or a directory, of which the newest undamaged
                checkpoint is restored.
            tables: the specs that its tables must have. A rate limiter may differ.
            limiters: "checkpoint" keeps the rate limiters as they were saved; "config" gives each table in `tables` the
                rate limiter that it has there, rebased.
            on_progress: called about once a second with a text that says how far it is.

        Returns:
            The `path` restored, its `tables` by name, and `notes`: everything that differs from what was saved or asked
            for.

        Raises:
            DamagedCheckpoint: the text names section and offset.
            CheckpointFailed: the directory has no undamaged checkpoint.
            ValueError: one of its tables exists already, or has other specs.
            ShmReplayError: there is not enough memory.
            TimeoutError: not finished within `timeout_s`; the daemon finishes it anyway. It is a ShmReplayError, too.
            TypeError: `path` is not a path, or `tables` not a list of Tables.
        """
        wires = [table.to_wire() for table in check_tables("restore", tables)]
        where = os.path.abspath(check_path("restore", "path", path))
        fields = self._request(
            "restore",
            timeout_s,
            is_repeatable=False,
            on_progress=on_progress,
            path=where,
            tables=wires,
            limiters=limiters,
        ).fields
        return {name: fields[name] for name in ("path", "tables", "notes")}

    def stats(self, items: bool = False) -> dict[str, Any]:
        """The daemon's figures: `daemon` and, by name, `arenas` with their counters, sessions, waits and tables.

        With `items`, a table also has the smallest, the largest and the sum of its items' priorities, and histograms of
        their ages, samples and priorities. These are scaled up from at most 65,536 items; see docs/operations.md.
        """
        fields = self._request("stats", items=items).fields
        return {"daemon": fields["daemon"], "arenas": fields["arenas"]}

    def shutdown(self) -> None:
        """Stops the daemon, which drops all tables. Raises PermissionError unless it runs as this user."""
        self._request("shutdown", is_repeatable=False)


def _entry(found: dict[str, Any]) -> dict[str, Any]:
    """What `Client.tables` says of one table, or of one shard."""
    return {**readable_info(found["info"]), "spec": Table.from_wire(found["spec"]), "arena": found["arena"]}


def check_tables(where: str, tables: Iterable[Table]) -> list[Table]:
    """Returns the tables as a list. Raises TypeError for anything but an iterable of Tables."""
    if isinstance(tables, Table):
        raise TypeError(f"{where}: expected a list of Tables, got a Table; write [table]")
    found = list(tables)
    for table in found:
        if not isinstance(table, Table):
            raise TypeError(f"{where}: expected shmreplay.Table, got {type(table).__name__}")
    return found


def _name_this_process(name: str) -> None:
    """A name is only for display, so a kernel that refuses one is no reason to stop."""
    try:
        name_this_process(name)
    except OSError as error:
        logger.warning("this process is not shown as %r: /proc/self/comm: %s", name, error.strerror)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the table's name is {name!r}; expected a str")
