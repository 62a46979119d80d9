"""Server: a private shmreplayd that lives as long as the process that made it."""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing.util  # noqa: F401  (its atexit handler is registered then, and so runs behind ours)
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import NoReturn

from shmreplay.abandoned import remove_abandoned
from shmreplay.checkpoint_directory import EMBEDDED_LABEL, find_checkpoints
from shmreplay.clients.client import Client, check_tables, connect
from shmreplay.errors import DaemonUnavailable, ShmReplayError
from shmreplay.protocol import embedded_socket_path
from shmreplay.segments import SegmentStore, embedded_instance, lock_name
from shmreplay.tables import Table

logger = logging.getLogger("shmreplay")

TAIL_BYTES = 4096
STOP_TIMEOUT_S = 15.0  # longer than the daemon waits for an arena whose lock holder is stopped


class Server:
    """Starts a daemon of its own and creates the tables in it. It ends with this process, however this process ends.

    Args:
        tables: created before this returns.
        checkpoint_dir: where `client.checkpoint()` saves, and keeps the newest two. One directory a server: while it
            runs, no other one gets it.
        restore: a checkpoint, or a directory of which the newest whole one is taken. Its tables are there when this
            returns, and those of `tables` that are not in it. Keys given out before still name the same items.
        limiters: of restored tables: "checkpoint" keeps them as they were saved, "config" takes those of `tables`.
            What differs is logged either way.
        directory: keep the segments on this tmpfs instead of /dev/shm.
        timeout_s: how long the daemon may take to start; creating the tables is not counted.

    Raises:
        DaemonUnavailable: the daemon did not start, as when another one saves to `checkpoint_dir`; the text ends with
            what it said.
        ShmReplayError, ValueError: the tables cannot be created. The daemon is stopped again.
        CheckpointFailed: the checkpoint is damaged (then a DamagedCheckpoint), or there is none (then a
            FileNotFoundError, too).
        TypeError: `tables` is no list of Tables.

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
        timeout_s: float = 30.0,
    ) -> None:
        tables = check_tables("Server", tables)
        self._daemon = _Daemon(directory, checkpoint_dir, timeout_s)
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


class _Daemon:
    """The child process, and what may be left of it."""

    def __init__(self, directory: str | None, checkpoint_dir: str | None, timeout_s: float) -> None:
        self._owner_pid = os.getpid()
        self._store = SegmentStore(directory)
        self._instance = embedded_instance(self._owner_pid, secrets.token_hex(6))
        # The daemon makes this directory and removes it: had we made it and died, it would stay for ever.
        self.socket = embedded_socket_path(_socket_root(), secrets.token_hex(6))
        self._log_fd = os.memfd_create("shmreplayd-log")  # no file to be left behind
        self._handler: weakref.finalize[..., Server] | None = None  # registered with atexit
        self._last_words: str | None = None  # what the log ended with, once its descriptor is closed
        ready, ready_for_child = os.pipe()
        try:
            self.process = self._start(directory, checkpoint_dir, ready_for_child)
        except BaseException:
            os.close(ready)
            os.close(self._log_fd)
            raise
        finally:
            os.close(ready_for_child)
        try:
            self._wait_until_ready(ready, timeout_s)
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(ready)

    def _start(self, directory: str | None, checkpoint_dir: str | None, ready_fd: int) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise DaemonUnavailable("sys.executable is empty, so no shmreplayd can be started; start one beforehand")
        command = [sys.executable, "-m", "shmreplay.daemon", "--embedded", "--socket", self.socket]
        command += ["--instance", self._instance, "--parent-pid", str(os.getpid()), "--ready-fd", str(ready_fd)]
        if directory is not None:
            command += ["--directory", directory]
        if checkpoint_dir is not None:
            command += ["--checkpoint-dir", os.path.abspath(checkpoint_dir)]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log_fd,
            stderr=self._log_fd,
            pass_fds=(ready_fd,),
            start_new_session=True,  # a Ctrl-C at the terminal is for us; we decide when the daemon ends
            cwd="/",
            env=_environment(),
        )

    def _wait_until_ready(self, ready: int, timeout_s: float) -> None:
        """The pipe says "ready", or ends when the daemon does."""
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        answered = poll.poll(timeout_s * 1000)
        if answered and os.read(ready, 64):
            return
        if answered:
            self.process.wait()
            raise DaemonUnavailable(
                f"shmreplayd could not start (exit code {self.process.returncode}): {self.log_tail()}"
            )
        raise DaemonUnavailable(f"shmreplayd did not start within {timeout_s:g} s; it said: {self.log_tail()}")

    def log_tail(self) -> str:
        if self._last_words is not None:
            return self._last_words
        size = os.fstat(self._log_fd).st_size
        tail = os.pread(self._log_fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
        return tail.decode("utf-8", "replace").strip() or "nothing"

    def end_with_interpreter(self, finalizer: weakref.finalize[..., Server]) -> None:
        """Has the server's finalizer run when the interpreter ends, before multiprocessing joins its processes.

        By itself it runs too late where another module made the first finalizer before multiprocessing was imported.
        """
        self._handler = finalizer
        atexit.register(finalizer)

    def stop(self) -> None:
        """Ends the daemon and waits for it. Does nothing in a forked child."""
        if self._handler is not None:
            atexit.unregister(self._handler)
        if os.getpid() != self._owner_pid:
            self.process.returncode = 0  # not our child: nothing to wait for, and nothing to warn of
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode != 0:
            self._remove_remains()
        self._last_words = self.log_tail()
        os.close(self._log_fd)

    def _remove_remains(self) -> None:
        """What a daemon that was killed left behind: nobody else will ever adopt this instance."""
        remove_abandoned(self._store, self._instance)
        for path in (self._store.path(lock_name(self._instance)), self.socket):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(os.path.dirname(self.socket))


def _socket_root() -> str:
    """Where sockets of embedded daemons go: the temporary directory unless its path is too long for a socket's."""
    root = tempfile.gettempdir()
    return root if len(os.fsencode(root)) <= 60 else "/tmp"


def _environment() -> dict[str, str]:
    """Ours, with the places that we import from: the daemon must be of this very installation."""
    places = [os.path.abspath(place) for place in sys.path if place]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONSAFEPATH": "1"}
