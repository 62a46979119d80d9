"""connect() and Client: the tables of a daemon, created, looked at, opened and dropped over its control socket."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast
from weakref import WeakValueDictionary

from shmreplay import _core
from shmreplay.base.checks import check_path
from shmreplay.clients.link.attachments import Attachment, Mapping, mappings
from shmreplay.clients.link.connection import Connection, Reply, RequestTimeout, fork_count
from shmreplay.clients.shards.shard_infos import join_shards
from shmreplay.clients.tables.info import readable_info
from shmreplay.errors import DaemonUnavailable, SegmentFailed, ShmReplayError, TableNotFound
from shmreplay.protocol import default_socket_paths, socket_path
from shmreplay.rate_limiters import RateLimiter, check_limiter
from shmreplay.tables.table import Table, warn_if_never_sampled

if TYPE_CHECKING:
    from shmreplay.clients.tables.table import TableHandle

__all__ = ["Attachment", "Client", "connect"]

DETACH_TIMEOUT_S = 5.0


class Dependent(Protocol):
    """What ends with its client: a view, a sampler."""

    def close(self) -> None:
        """Ends it. Idempotent."""


def connect(address: str | None = None, timeout_s: float | None = 10) -> Client:
    """Connects to a daemon, waiting up to `timeout_s` seconds (None: for ever) for one that is starting.

    Args:
        address: the path of its socket, `unix:` before it allowed. None looks at `$SHMREPLAY_SOCKET`, then at
            `$XDG_RUNTIME_DIR/shmreplay/default.sock`, then at `/run/shmreplay/default.sock`.
        timeout_s: also bounds later waits, when the daemon is being restarted.

    Raises:
        DaemonUnavailable: nobody answered in time.
        PermissionError: this user may not connect; the text says who may.
        ValueError: the address is not a socket path.
        TypeError: it is no str.
    """
    client = Client(address, timeout_s)
    client.connection.connect()
    return client


class Client:
    """A daemon's tables. Safe to use from threads, after a fork and, pickled, in other processes.

    Making one connects to nobody yet: that happens with the first call, or at once in `connect`. All methods raise
    DaemonUnavailable when the daemon is gone and does not come back within the client's `timeout_s`, and
    ShmReplayError after `close`. Handles of tables do not need the daemon for their work.
    """

    def __init__(self, address: str | None = None, timeout_s: float | None = 10) -> None:
        paths = default_socket_paths() if address is None else [socket_path(address)]
        if address is not None and os.path.isdir(paths[0]):
            raise ValueError(f"address {address!r} is a directory; give the path of the socket in it")
        self.connection = Connection(paths, check_timeout(timeout_s))
        self.lock_timeout_s: float | None = None  # attaching waits no longer for an arena's lock
        self._attachments: dict[str, Attachment] = {}
        self._held: dict[int, Mapping] = {}
        self._closed = _core.Flag()  # calls that wait look at it once a second
        self._dependents = WeakValueDictionary[int, Dependent]()  # by identity

    @property
    def address(self) -> str:
        """The socket's path."""
        return self.connection.paths[0]

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set

    # --- tables --------------------------------------------------------------------------------------------------

    def create_tables(self, tables: Iterable[Table], timeout_s: float | None = None) -> None:
        """Creates the tables that are not there yet: all of them, or none. Reserving memory takes 0.2 to 0.7 s a GiB.

        Where the same tables are there it does nothing: if every process calls it, any of them may be the first.

        Raises:
            ValueError: a table of the name exists with other specs; the text says where they differ.
            ShmReplayError: there is not enough memory; the text says how much is needed and free, and what to do.
            TimeoutError: not finished within `timeout_s`; the daemon goes on with it. It is a ShmReplayError too.
            TypeError: `tables` is no list of Tables.
        """
        tables = check_tables("create_tables", tables)
        self._request("create_tables", timeout_s, tables=[table.to_wire() for table in tables])

    def tables(self) -> dict[str, dict[str, Any]]:
        """All tables by name: `spec` (a Table), `arena`, and the figures of its info: size, inserts, samples, ...

        Of one with shards the figures are those of all together, and `arena` is a list.

        Raises:
            SegmentFailed: the figures of one can not be those of any table.
        """
        found = self._request("tables").fields["tables"]
        entries = {
            name: {**readable_info(entry["info"]), "spec": Table.from_wire(entry["spec"]), "arena": entry["arena"]}
            for name, entry in found.items()
        }
        return join_shards(entries)

    def table(self, name: str, seed: Any = None) -> TableHandle:
        """A handle to work on a table with; of one with shards it is a `ShardedTable`, which has the same calls.

        `seed` makes its sampling repeatable.

        Raises:
            TableNotFound: there is no such table; the text names those there are. It does not wait for one: have every
                process call `create_tables` before.
            LayoutMismatch, SegmentFailed: its memory is not what this version of shmreplay can use.
        """
        from shmreplay.clients.shards.sharded_table import ShardedTable
        from shmreplay.clients.tables.table import TableHandle

        _check_name(name)
        attachment = self._attach(name)
        if (whole := attachment.table.whole) is not None and whole.name == name:
            return cast("TableHandle", ShardedTable(self, whole, seed))
        return TableHandle(self, name, attachment, seed)

    def drop_table(self, name: str, timeout_s: float | None = None) -> None:
        """Drops a table and gives its memory back. Callers blocked in it get TableClosed.

        Raises:
            TableNotFound: there is no such table.
            ShmReplayError: other tables share its arena (use `drop_tables`), or its lock was not to be had within
                `timeout_s`.
        """
        _check_name(name)
        self._request("drop_table", None, is_repeatable=False, table=name, timeout_s=timeout_s)
        with mappings().lock:
            self._forget(name)

    def drop_tables(self, names: Iterable[str], timeout_s: float | None = None) -> None:
        """Drops tables that share an arena together, or several of their own: arena by arena, each as a whole.

        Raises:
            TableNotFound: one of them is not there; none is dropped.
            ShmReplayError: a table that is not named shares an arena with one that is: none is dropped. Or an arena's
                lock was not to be had within `timeout_s`: those before it are dropped.
            TypeError, ValueError: `names` is no list of names, or empty.
        """
        if isinstance(names, str):
            raise TypeError(f"drop_tables: expected a list of names, got {names!r}; write [{names!r}]")
        names = list(names)
        for name in names:
            _check_name(name)
        if not names:
            raise ValueError("drop_tables: expected at least one name")
        self._request("drop_tables", None, is_repeatable=False, tables=names, timeout_s=timeout_s)
        with mappings().lock:
            for name in names:
                self._forget(name)

    def reset(self, name: str, timeout_s: float | None = None) -> None:
        """Empties a table. Raises TableNotFound."""
        _check_name(name)
        self._request("reset", table=name, timeout_s=timeout_s)

    def set_rate_limiter(
        self, name: str, rate_limiter: RateLimiter, *, rebase: bool = True, timeout_s: float | None = None
    ) -> None:
        """Gives a table another rate limiter; `rebase` starts its difference anew in the middle of the new bounds.

        Warns:
            UserWarning: its `min_size_to_sample` is more than the table's `max_size`.

        Raises:
            TableNotFound: there is no such table.
            TypeError: it is no rate limiter.
        """
        _check_name(name)
        check_limiter(f"table {name!r}", rate_limiter)
        wire = rate_limiter.to_wire()
        self._request("set_rate_limiter", table=name, rate_limiter=wire, rebase=rebase, timeout_s=timeout_s)
        if (table := self.tables().get(name)) is not None:
            warn_if_never_sampled(name, table["spec"].max_size, rate_limiter, stacklevel=2)

    def pause(self, name: str, *, inserts: bool = True, samples: bool = True, timeout_s: float | None = None) -> None:
        """Lets inserts, samples or both wait, as if the rate limiter did not admit them, until `resume`.

        Raises TableNotFound, as `resume` does.
        """
        _check_name(name)
        self._request("pause", table=name, inserts=inserts, samples=samples, timeout_s=timeout_s)

    def resume(self, name: str, timeout_s: float | None = None) -> None:
        """Ends a pause. Does nothing if there is none."""
        _check_name(name)
        self._request("resume", table=name, timeout_s=timeout_s)

    def checkpoint(self, timeout_s: float | None = None, *, on_progress: Callable[[str], None] | None = None) -> str:
        """Saves all tables while everybody works on, and returns the path of the file. See docs/checkpoints.md.

        The tables of an arena are saved as they are at one instant. Nobody waits for it, but for the moment in which
        the index is copied, about 4 ms a million items. `on_progress` is called about every second with how far it is.

        Raises:
            CheckpointFailed: it was given up, or the daemon has no directory for them; the text says why.
            OSError: the file could not be written, as on a full disk. The checkpoints before it are still there.
            TimeoutError: not finished within `timeout_s`; the daemon goes on with it. It is a ShmReplayError too.
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
        """Makes the tables of a checkpoint anew: all of them, or none. None of them may be there.

        Args:
            path: a checkpoint as the daemon finds it, or a directory of which the newest whole one is taken.
            tables: what is expected of its tables. Other specs are refused, but for the rate limiter's.
            limiters: "checkpoint" keeps rate limiters as they were saved; "config" gives each table in `tables` the one
                it has there, rebased.
            on_progress: called about every second with how far it is.

        Returns:
            `path` restored, its `tables` by name, and `notes`: all that is not as it was or not as it was asked for.

        Raises:
            DamagedCheckpoint: the text names section and offset.
            CheckpointFailed: there is no whole checkpoint in the directory.
            ValueError: a table of it is there already, or has other specs.
            ShmReplayError: there is not enough memory.
            TimeoutError: not finished within `timeout_s`; the daemon goes on with it. It is a ShmReplayError too.
            TypeError: `path` is no path, or `tables` no list of Tables.
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

        With `items` a table also has the extremes and the sum of its items' priorities, and histograms of their ages,
        samples and priorities, scaled up from at most 65,536 items; see docs/operations.md.
        """
        fields = self._request("stats", items=items).fields
        return {"daemon": fields["daemon"], "arenas": fields["arenas"]}

    def shutdown(self) -> None:
        """Stops the daemon and with it all tables. Raises PermissionError unless it runs as this user."""
        self._request("shutdown", is_repeatable=False)

    # --- attaching -----------------------------------------------------------------------------------------------

    def _attach(self, name: str, *, refresh: bool = False) -> Attachment:
        """The mapped arena of a table, this process' own. `refresh` asks the daemon even if the known one serves."""
        self._check_open()
        own = mappings()
        with own.lock:
            known = self._attachments.get(name)
            if known is not None and not refresh and self._serves(known):
                return known
            try:
                reply = self._request("open", takes_fds=True, table=name, timeout_s=self.lock_timeout_s)
            except TableNotFound as error:
                self._forget(name)
                raise TableNotFound(
                    f"{error}; call create_tables([...]) before, in every process: where the same tables are there it "
                    "does nothing"
                ) from error
            mapping, attachment = own.take(reply)
            if known is not None and known.arena is not attachment.arena:
                self._forget(name)
            if self._held.get(id(mapping)) is not mapping:
                mapping.num_users += 1
                self._held[id(mapping)] = mapping
            self._attachments[name] = attachment
            return attachment

    def _serves(self, known: Attachment) -> bool:
        """Whether it can be worked with: of this process, its table not dropped, its session not taken back."""
        if known.fork_count != fork_count() or known.arena.table(known.index).dropped:
            return False
        own = [(held.session, held.generation) for held in self._held.values() if held.arena is known.arena]
        return any((entry["session"], entry["generation"]) in own for entry in known.arena.sessions())

    def _forget(self, name: str) -> None:
        """Lets go of a table that is no more: its memory comes back when the last handle to it has gone."""
        for other, attachment in list(self._attachments.items()):
            if other != name and attachment.table.owner.name == name:
                self._forget(other)  # a shard of it
        gone = self._attachments.pop(name, None)
        if gone is None or any(other.arena is gone.arena for other in self._attachments.values()):
            return
        for key, mapping in list(self._held.items()):
            if mapping.arena is gone.arena:
                del self._held[key]
                mappings().release(mapping)

    def _detach_all(self) -> None:
        own = mappings()
        with own.lock:
            for mapping in self._held.values():
                if own.release(mapping):
                    self._detach(mapping)
            self._held = {}
            self._attachments = {}

    def _detach(self, mapping: Mapping) -> None:
        if not mapping.arena.end_calls(DETACH_TIMEOUT_S):
            return  # a thread is still at work on rows; the session ends with this process
        fields = {"arena": mapping.name, "session": mapping.session, "generation": mapping.generation}
        # A daemon that is gone, or cannot lock the arena now, takes the session back when this process ends; of a
        # damaged arena there is nothing to take back.
        with contextlib.suppress(DaemonUnavailable, RequestTimeout, PermissionError, SegmentFailed):
            self.connection.request("detach", fields, timeout_s=DETACH_TIMEOUT_S, waits_for_daemon=False)

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives this process' sessions back, unless another client of it uses them. Handles raise from now on."""
        if self.is_closed:
            return
        self._closed.set()
        for reference in self._dependents.valuerefs():  # a list made at once, whatever other threads add
            if (dependent := reference()) is not None:
                dependent.close()
        try:
            self._detach_all()
        finally:
            self.connection.close()

    def _add_dependent(self, dependent: Dependent) -> None:
        """Closes it with this client, unless it is garbage by then. Raises ShmReplayError if that is over."""
        self._dependents[id(dependent)] = dependent
        if self.is_closed:
            dependent.close()
            self._check_open()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Client], tuple[str | None, float | None]]:
        is_found = len(self.connection.paths) == 1
        return Client, (self.address if is_found else None, self.connection.timeout_s)

    def __repr__(self) -> str:
        return f"<shmreplay.Client {self.address}{' closed' if self.is_closed else ''}>"

    def _request(
        self,
        command: str,
        wait_s: float | None = None,
        *,
        takes_fds: bool = False,
        is_repeatable: bool = True,
        on_progress: Callable[[str], None] | None = None,
        **fields: Any,
    ) -> Reply:
        self._check_open()
        check_timeout(wait_s)
        check_timeout(fields.get("timeout_s"))
        return self.connection.request(
            command,
            fields,
            timeout_s=wait_s,
            takes_fds=takes_fds,
            is_repeatable=is_repeatable,
            on_progress=on_progress,
        )

    def _check_open(self) -> None:
        if self.is_closed:
            raise ShmReplayError(f"the client of {self.address} is closed; connect anew")


def check_tables(where: str, tables: Iterable[Table]) -> list[Table]:
    """Returns the tables as a list. Raises TypeError for anything else than Tables in an iterable."""
    if isinstance(tables, Table):
        raise TypeError(f"{where}: expected a list of Tables, got a Table; write [table]")
    found = list(tables)
    for table in found:
        if not isinstance(table, Table):
            raise TypeError(f"{where}: expected shmreplay.Table, got {type(table).__name__}")
    return found


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the table's name is {name!r}; expected a str")


def check_timeout(timeout_s: float | None) -> float | None:
    """Returns it. Raises TypeError for what is no number, ValueError unless it is None or at least 0 seconds."""
    if timeout_s is None:
        return None
    text = f"timeout_s is {timeout_s!r:.100}; expected seconds >= 0, or None to wait for ever"
    if isinstance(timeout_s, (str, bytes)):
        raise TypeError(text)
    try:
        seconds = float(timeout_s)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(text) from error
    if not seconds >= 0:
        raise ValueError(text)
    return timeout_s
