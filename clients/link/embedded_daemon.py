"""EmbeddedDaemon: a shmreplayd as a child process of the one that made it."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util  # noqa: F401  (registers its atexit handler before ours, so it runs after ours)
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from typing import Any

from shmreplay.base.blocked_signals import signals_blocked
from shmreplay.errors import DaemonUnavailable
from shmreplay.protocol import embedded_socket_path
from shmreplay.segments.abandoned import remove_abandoned
from shmreplay.segments.page_policy import PagePolicy
from shmreplay.segments.segment import SegmentStore, embedded_instance, lock_name

TAIL_BYTES = 4096
STOP_TIMEOUT_S = 15.0  # longer than the daemon waits for a lock whose holder is stopped
START_STOP_TIMEOUT_S = 2.0  # while it starts, nobody uses its tables


class EmbeddedDaemon:
    """The child process; removes what is left of it if it is killed."""

    def __init__(self, directory: str | None, checkpoint_dir: str | None, timeout_s: float, pages: PagePolicy) -> None:
        self._owner_pid = os.getpid()
        self._store = SegmentStore(directory)
        self._instance = embedded_instance(self._owner_pid, secrets.token_hex(6))
        # The daemon makes and removes this directory: if we made it, it would stay for ever when we are killed.
        self.socket = embedded_socket_path(_socket_root(), secrets.token_hex(6))
        self._log_fd = os.memfd_create("shmreplayd-log")  # unlike a file, it leaves nothing behind
        self._handler: weakref.finalize[..., Any] | None = None  # registered with atexit
        self._last_words: str | None = None  # the end of the log, kept when its descriptor is closed
        # Over this socket we ask for the stop: a signal could be anybody's, so the daemon ignores them all.
        self._stopper, stopper_for_child = socket.socketpair()
        ready, ready_for_child = os.pipe()
        try:
            with stopper_for_child, signals_blocked(signal.valid_signals()):
                self.process = self._start(
                    directory, checkpoint_dir, ready_for_child, stopper_for_child.fileno(), pages
                )
        except BaseException:
            os.close(ready)
            os.close(self._log_fd)
            self._stopper.close()
            raise
        finally:
            os.close(ready_for_child)
        try:
            self._wait_until_ready(ready, timeout_s)
        except BaseException:
            self._stop(START_STOP_TIMEOUT_S)
            raise
        finally:
            os.close(ready)

    def _start(
        self, directory: str | None, checkpoint_dir: str | None, ready_fd: int, stop_fd: int, pages: PagePolicy
    ) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise DaemonUnavailable(
                "sys.executable is empty, so no shmreplayd can be started; start one by hand and use sr.connect()"
            )
        command = [sys.executable, "-m", "shmreplay.daemon", "--embedded", "--socket", self.socket]
        command += ["--instance", self._instance, "--parent-pid", str(os.getpid())]
        command += ["--ready-fd", str(ready_fd), "--stop-fd", str(stop_fd)]
        command += ["--huge-pages", pages.huge_pages, "--numa", pages.numa]
        if directory is not None:
            command += ["--directory", directory]
        if checkpoint_dir is not None:
            command += ["--checkpoint-dir", os.path.abspath(checkpoint_dir)]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log_fd,
            stderr=self._log_fd,
            pass_fds=(ready_fd, stop_fd),
            start_new_session=True,  # a Ctrl-C at the terminal must reach only us; we decide when the daemon ends
            cwd="/",
            env=_environment(),
        )

    def _wait_until_ready(self, ready: int, timeout_s: float) -> None:
        """Waits for the daemon to write "ready" to the pipe, or to close it by ending."""
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

    def end_with_interpreter(self, finalizer: weakref.finalize[..., Any]) -> None:
        """Has the server's finalizer run when the interpreter ends, before multiprocessing joins its processes.

        weakref alone would run it too late if another module made the first finalizer before multiprocessing was
        imported.
        """
        self._handler = finalizer
        atexit.register(finalizer)

    def stop(self) -> None:
        """Ends the daemon and waits for it. Does nothing in a forked child."""
        if self._handler is not None:
            atexit.unregister(self._handler)
        if os.getpid() != self._owner_pid:
            self.process.returncode = 0  # not our child: nothing to wait for, and no reason for a ResourceWarning
            self._stopper.close()
            return
        self._stop(STOP_TIMEOUT_S)

    def _stop(self, timeout_s: float) -> None:
        was_asked = False
        with contextlib.suppress(OSError), self._stopper:  # it has ended, or somebody closed this descriptor
            self._stopper.send(b"stop", socket.MSG_NOSIGNAL)
            was_asked = True
        try:
            self.process.wait(timeout_s if was_asked else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode != 0:
            self._remove_leftovers()
        self._last_words = self.log_tail()
        os.close(self._log_fd)

    def _remove_leftovers(self) -> None:
        """Removes what a killed daemon left behind: no other daemon ever adopts this instance."""
        remove_abandoned(self._store, self._instance)
        for path in (self._store.path(lock_name(self._instance)), self.socket):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(os.path.dirname(self.socket))


def _socket_root() -> str:
    """Where sockets of embedded daemons go: the temporary directory, or /tmp if its path is too long for a socket."""
    root = tempfile.gettempdir()
    return root if len(os.fsencode(root)) <= 60 else "/tmp"


def _environment() -> dict[str, str]:
    """Our environment, with our import paths: the daemon must be of this very installation."""
    places = [os.path.abspath(place) for place in sys.path if place]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONSAFEPATH": "1"}
