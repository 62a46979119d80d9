"""Server: a private shmreplayd that lives as long as the process that made it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import NoReturn

from shmreplay.base.checks import check_path
from shmreplay.checkpoints.checkpoint_directory import EMBEDDED_LABEL, find_checkpoints
from shmreplay.clients.client import Client, check_tables, connect
from shmreplay.clients.link.embedded_daemon import EmbeddedDaemon
from shmreplay.errors import ShmReplayError
from shmreplay.segments.page_policy import PagePolicy
from shmreplay.tables.table import Table

logger = logging.getLogger("shmreplay")


class Server:
    """Starts a daemon of its own and creates the tables in it. It ends with this process, however this process ends.

    Args:
        tables: created before this returns.
        checkpoint_dir: where `client.checkpoint()` saves, and keeps the newest two. One directory a server: while it
            runs, no other one gets it. Nothing is saved by itself, at the end either.
        restore: a checkpoint, or a directory of which the newest whole one is taken. Its tables are there when this
            returns, and those of `tables` that are not in it. Keys given out before still name the same items. Other
            specs than those saved, as a larger `max_size`, are refused.
        limiters: of restored tables: "checkpoint" keeps them as they were saved, "config" takes those of `tables`.
            What differs is logged either way.
        directory: keep the segments on this tmpfs instead of /dev/shm.
        huge_pages: "auto" takes pages of 2 MiB where the kernel has some, "require" makes no table without, "never"
            asks for none. `shmreplay doctor` says what there is, `client.stats()` what an arena got.
        numa: "interleave" spreads the segments over the machine's memory nodes; with one node it changes nothing.
        timeout_s: how long the daemon may take to start; creating the tables is not counted.

    Raises:
        DaemonUnavailable: the daemon did not start, as when another one saves to `checkpoint_dir`, or there are no huge
            pages and they are required; the text ends with what it said.
        ShmReplayError, ValueError: the tables cannot be created. The daemon is stopped again.
        CheckpointFailed: the checkpoint is damaged (then a DamagedCheckpoint), or there is none (then a
            FileNotFoundError, too).
        TypeError: `tables` is no list of Tables, or a path is none.

    Other processes reach it with `shmreplay.connect(server.address)` as long as this one lives. Forked children may use
    the object but do not own it: closing it there does nothing.

    Use it with `with`. A server that is still open when the interpreter ends is closed before multiprocessing joins its
    processes, so that actors blocked in a table end too; non-daemon threads that are blocked are joined before that.
    """

    def __init__(
        self,
        tables: Iterable[Table] = (),
        *,
        checkpoint_dir: str | None = None,
        restore: str | None = None,
        limiters: str = "checkpoint",
        directory: str | None = None,
        huge_pages: str = "auto",
        numa: str = "default",
        timeout_s: float = 30.0,
    ) -> None:
        tables = check_tables("Server", tables)
        for name, path in (("checkpoint_dir", checkpoint_dir), ("restore", restore), ("directory", directory)):
            if path is not None:
                check_path("Server", name, path)
        pages = PagePolicy(huge_pages, numa)
        self._daemon = EmbeddedDaemon(directory, checkpoint_dir, timeout_s, pages)
        # Also runs when this object is collected, as in a notebook cell that is run again, and at interpreter exit.
        self._finalizer = weakref.finalize(self, self._daemon.stop)
        self._daemon.end_with_interpreter(self._finalizer)
        try:
            if checkpoint_dir is not None and restore is None:
                _tell_of_checkpoints(checkpoint_dir)
            if tables or restore is not None:
                with self.client() as client:
                    _fill(client, tables, restore, limiters)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """What other processes give to `shmreplay.connect`."""
        return self._daemon.socket

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        return self._daemon.process.pid

    def client(self) -> Client:
        """A new client of this server. Raises ShmReplayError after `close`."""
        if not self._finalizer.alive:
            raise ShmReplayError("the server is closed")
        return connect(self.address)

    def log(self) -> str:
        """The last lines that the daemon wrote."""
        return self._daemon.log_tail()

    def close(self) -> None:
        """Stops the daemon, and with it all tables. Callers blocked in them get TableClosed."""
        self._finalizer()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Server can not be pickled; pass server.address, or server.client()")

    def __repr__(self) -> str:
        return f"<shmreplay.Server {self.address}{'' if self._finalizer.alive else ' closed'}>"


def _fill(client: Client, tables: list[Table], restore: str | None, limiters: str) -> None:
    """Restores, then creates those tables that the checkpoint did not have."""
    restored: list[str] = []
    if restore is not None:
        found = client.restore(restore, tables, limiters=limiters)
        restored = found["tables"]
        for note in found["notes"]:
            logger.warning("restored %s: %s", found["path"], note)
    missing = [table for table in tables if table.name not in restored]
    if missing:
        client.create_tables(missing)


def _tell_of_checkpoints(directory: str) -> None:
    """Somebody may have forgotten `restore`. The daemon removes none of those that are there."""
    paths = find_checkpoints(directory, EMBEDDED_LABEL)
    if paths:
        logger.warning(
            "%s holds %d checkpoints of sr.Server, and restore= was not given: starting without them; none of them is "
            "removed", directory, len(paths),
        )  # fmt: skip
