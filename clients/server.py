"""Server: a private shmreplayd that ends with the process that made it."""

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
    """Starts a daemon of its own and creates the tables in it. The daemon ends with this process, even if it is killed.

    Args:
        tables: created before this returns.
        checkpoint_dir: where `client.checkpoint()` saves; the newest two checkpoints are kept. Each running server
            needs a directory of its own. Nothing is saved without that call, not even at the end.
        restore: a checkpoint, or a directory, of which the newest undamaged checkpoint is restored. Those of `tables`
            that are not in it are created. Keys of before the checkpoint still name the same items. Tables whose specs
            differ from those saved, such as in `max_size`, are refused.
        limiters: "checkpoint" keeps the rate limiters of restored tables as they were saved, "config" takes those of
            `tables`. Differences are logged either way.
        directory: keep the segments on this tmpfs instead of /dev/shm.
        huge_pages: "auto" uses pages of 2 MiB where the kernel has some, "require" creates no table without them,
            "never" uses none. `shmreplay doctor` says what the machine has, `client.stats()` what an arena got.
        numa: "interleave" spreads the segments over the machine's memory nodes; with one node it changes nothing.
        timeout_s: how long the daemon may take to start, without the creation of the tables.

    Raises:
        DaemonUnavailable: the daemon did not start, as when another one saves to `checkpoint_dir`, or huge pages are
            required and there are none; the text ends with the daemon's log.
        ShmReplayError, ValueError: the tables cannot be created. The daemon is stopped again.
        CheckpointFailed: the checkpoint is damaged (then it is a DamagedCheckpoint), or there is none (then it is a
            FileNotFoundError, too).
        TypeError: `tables` is not a list of Tables, or a path is not a path.

    Other processes reach it with `shmreplay.connect(server.address)` as long as this process lives. Forked children may
    use the object but do not own it: closing it there does nothing.

    Use it with `with`. A server that is still open when the interpreter ends is closed before multiprocessing joins its
    processes, so actors that wait in a table end too. Without `with`, a non-daemon thread that waits in a table can
    keep Python from exiting.
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
        # It also runs at interpreter exit, and when this object is garbage, as when a notebook cell is run again.
        self._finalizer = weakref.finalize(self, self._daemon.stop)
        self._daemon.end_with_interpreter(self._finalizer)
        try:
            if checkpoint_dir is not None and restore is None:
                _log_checkpoints(checkpoint_dir)
            if tables or restore is not None:
                with self.client() as client:
                    _fill(client, tables, restore, limiters)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The address with which other processes call `shmreplay.connect`."""
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
        """The last lines of the daemon's log."""
        return self._daemon.log_tail()

    def close(self) -> None:
        """Stops the daemon, which drops all tables. Calls that wait in them raise TableClosed."""
        self._finalizer()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Server cannot be pickled; pass server.address, or server.client()")

    def __repr__(self) -> str:
        return f"<shmreplay.Server {self.address}{'' if self._finalizer.alive else ' closed'}>"


def _fill(client: Client, tables: list[Table], restore: str | None, limiters: str) -> None:
    """Restores the checkpoint, then creates those tables that it did not have."""
    restored: list[str] = []
    if restore is not None:
        found = client.restore(restore, tables, limiters=limiters)
        restored = found["tables"]
        for note in found["notes"]:
            logger.warning("restored %s: %s", found["path"], note)
    missing = [table for table in tables if table.name not in restored]
    if missing:
        client.create_tables(missing)


def _log_checkpoints(directory: str) -> None:
    """Logs that there are checkpoints, in case `restore` was forgotten. The daemon removes none of them."""
    paths = find_checkpoints(directory, EMBEDDED_LABEL)
    if paths:
        logger.warning(
            "%s holds %d checkpoints of sr.Server, and restore= was not given: starting without them; none of them is "
            "removed", directory, len(paths),
        )  # fmt: skip
