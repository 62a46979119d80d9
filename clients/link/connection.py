"""Connection: the socket to the daemon, connected when needed, and again after a fork or a restart of the daemon."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import pwd
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shmreplay import _core
from shmreplay.errors import DaemonUnavailable, ShmReplayError
from shmreplay.protocol import (
    MAX_FDS,
    PROTOCOL_VERSION,
    Deadline,
    Message,
    ProtocolError,
    is_embedded_socket,
    package_version,
    raise_answered_error,
    receive_message,
    send_message,
)

SILENCE_S = 30.0  # a working daemon reports progress every second; one that is silent for so long is stopped
LOG_AFTER_S = 10.0
MAX_FRESH_FAILURES = 3  # if so many daemons in a row died during a request, the request is what kills them
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.1

logger = logging.getLogger("shmreplay")

_fork_count = 0
_guard = threading.Lock()


def fork_count() -> int:
    """The number of forks between this process and the one that imported shmreplay."""
    return _fork_count


def _after_fork() -> None:
    global _fork_count, _guard
    _fork_count += 1
    _guard = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


class RequestTimeout(ShmReplayError, TimeoutError):
    """The caller's time was up while the daemon still worked on the request."""


@dataclass(frozen=True)
class Reply:
    """An answer: its fields, the descriptors that came with it (the caller closes them), and their allowed owners."""

    fields: Message
    fds: list[int] = field(default_factory=list)
    owner_ids: set[int] = field(default_factory=set)


@dataclass
class _Line:
    """The lock and, once connected, the socket of one process. A forked child gets a new one."""

    fork_count: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    sock: socket.socket | None = None
    hello: Message = field(default_factory=dict)

    def __del__(self) -> None:
        if self.sock is not None:  # a client that is garbage without a close: no reason for a ResourceWarning
            self.sock.close()


class Connection:
    """One request at a time over one socket; threads take turns. `timeout_s` limits the wait for a daemon to answer.

    `paths` are tried in turn until a daemon answers at one of them, which is then kept.
    """

    def __init__(self, paths: Sequence[str], timeout_s: float | None) -> None:
        self.paths = list(paths)
        self.timeout_s = timeout_s
        self._line = _Line(_fork_count)

    def _own_line(self) -> _Line:
        with _guard:
            if self._line.fork_count != _fork_count:
                inherited = self._line.sock
                if inherited is not None:  # closes only our copy; the parent keeps its connection
                    inherited.close()
                self._line = _Line(_fork_count)
            return self._line

    def connect(self) -> Message:
        """Connects unless connected, and returns the daemon's hello. Raises DaemonUnavailable or PermissionError."""
        line = self._own_line()
        with line.lock:
            self._ensure_connected(line, Deadline(self.timeout_s))
            return line.hello

    def request(
        self,
        command: str,
        fields: dict[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        takes_fds: bool = False,
        is_repeatable: bool = True,
        waits_for_daemon: bool = True,
        on_progress: Callable[[str], None] | None = None,
    ) -> Reply:
        """Sends a request and returns the reply. Connects again if the daemon was restarted since the last request.

        After a Ctrl-C the daemon may still carry the request out. `on_progress` is called about once a second with a
        text that says how far the request is.

        Raises:
            DaemonUnavailable: the daemon is gone or silent.
            RequestTimeout: it has not finished within `timeout_s`.
            ShmReplayError and others: the error that the daemon answered.
        """
        message = {"command": command, **(fields or {})}
        line = self._own_line()
        with line.lock:
            patience_s = self.timeout_s if waits_for_daemon else 0.0
            reply = self._exchange(
                line, message, Deadline(timeout_s), patience_s, takes_fds, is_repeatable, on_progress
            )
        raise_answered_error(reply.fields)
        return reply

    def _exchange(
        self,
        line: _Line,
        message: Message,
        deadline: Deadline,
        patience_s: float | None,
        takes_fds: bool,
        is_repeatable: bool,
        on_progress: Callable[[str], None] | None,
    ) -> Reply:
        patience = Deadline(patience_s)
        fresh_failures = 0
        while True:
            is_fresh = self._ensure_connected(line, patience if fresh_failures else Deadline(patience_s))
            assert line.sock is not None
            try:
                answer, fds = self._ask(line.sock, message, deadline, takes_fds, on_progress)
                return Reply(answer, fds, _owner_ids(line.sock, line.hello))
            except DaemonUnavailable:
                self._hang_up(line)
                raise
            except ConnectionError as error:
                self._hang_up(line)
                fresh_failures += 1 if is_fresh else 0
                if not is_repeatable or (is_fresh and (patience.is_over or fresh_failures == MAX_FRESH_FAILURES)):
                    raise DaemonUnavailable(
                        f"the shmreplayd at {self.paths[0]} closed the connection during {message['command']}; "
                        "it was stopped or killed, see its log"
                    ) from error
            except BaseException:  # after a Ctrl-C or a timeout, the answer would be taken for that of the next request
                self._hang_up(line)
                raise

    def _ask(
        self,
        sock: socket.socket,
        message: Message,
        deadline: Deadline,
        takes_fds: bool,
        on_progress: Callable[[str], None] | None,
    ) -> tuple[Message, list[int]]:
        """One request and its answer. A daemon that refuses a message half-way says why before it closes."""
        try:
            self._in_time(lambda limit: send_message(sock, message, limit), deadline, message, "")
        except ConnectionError:
            with contextlib.suppress(ConnectionError, ProtocolError):
                return receive_message(sock, Deadline(1.0))
            raise
        progress, started, is_logged = "", time.monotonic(), False
        while True:
            answer, fds = self._in_time(
                lambda limit: receive_message(sock, limit, MAX_FDS if takes_fds else 0), deadline, message, progress
            )
            if "progress" not in answer:
                return answer, fds
            progress = str(answer["progress"])
            if on_progress is not None:
                on_progress(progress)
            if not is_logged and time.monotonic() - started > LOG_AFTER_S:
                is_logged = True
                logger.warning("%s has waited for the daemon for %g s: %s", message["command"], LOG_AFTER_S, progress)

    def _in_time(self, step: Callable[[Deadline], Any], deadline: Deadline, message: Message, progress: str) -> Any:
        remaining_s = deadline.remaining_s()
        limit_s = SILENCE_S if remaining_s is None else min(SILENCE_S, remaining_s)
        try:
            return step(Deadline(limit_s))
        except TimeoutError:
            if limit_s < SILENCE_S:
                detail = f" ({progress})" if progress else ""
                raise RequestTimeout(
                    f"{message['command']} did not finish within {deadline.timeout_s:g} s{detail}; "
                    "the daemon goes on with it"
                ) from None
            raise self._silent(SILENCE_S) from None

    def _silent(self, waited_s: float) -> DaemonUnavailable:
        return DaemonUnavailable(
            f"the shmreplayd at {self.paths[0]} has a socket but said nothing for {waited_s:.3g} s; "
            "is it stopped (SIGSTOP, a debugger), or is the machine out of memory?"
        )

    # --- connecting ----------------------------------------------------------------------------------------------

    def _ensure_connected(self, line: _Line, deadline: Deadline) -> bool:
        """Connects unless there is a connection whose daemon still runs. Returns whether it had to connect.

        A request that must not be repeated is so never sent to a daemon that has ended.
        """
        if line.sock is not None and _has_ended(line.sock):
            self._hang_up(line)
        if line.sock is not None:
            return False
        line.sock, line.hello = self._connect(deadline)
        return True

    def _connect(self, deadline: Deadline) -> tuple[socket.socket, Message]:
        """Tries again and again while a daemon starts: no event tells that a socket begins to listen."""
        pause_s, was_denied = FIRST_PAUSE_S, False
        while True:
            failures: dict[str, OSError] = {}
            for path in self.paths:
                try:
                    sock, hello = self._try_path(path, deadline)
                except DaemonUnavailable:
                    raise
                except OSError as error:  # no socket, nobody listening, its queue full, or no permission
                    failures[path] = error
                    continue
                self.paths = [path]
                if "error" in hello:
                    sock.close()
                    raise_answered_error(hello)
                return sock, hello
            denied = next((path for path, error in failures.items() if isinstance(error, PermissionError)), None)
            # Try twice: a daemon that is starting binds its socket first, and gives its group the permission next.
            if denied is not None and (was_denied or deadline.is_over):
                raise PermissionError(_why_denied(denied)) from failures[denied]
            was_denied = denied is not None
            for path in failures:
                if is_embedded_socket(path) and not os.path.lexists(os.path.dirname(path)):
                    raise DaemonUnavailable(f"the sr.Server at this address has ended ({path})") from failures[path]
            if deadline.is_over:
                raise self._unavailable(failures, deadline)
            remaining_s = deadline.remaining_s()
            time.sleep(pause_s if remaining_s is None else min(pause_s, remaining_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _try_path(self, path: str, deadline: Deadline) -> tuple[socket.socket, Message]:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(path)
            return sock, self._say_hello(sock, deadline)
        except BaseException:
            sock.close()
            raise

    def _say_hello(self, sock: socket.socket, deadline: Deadline) -> Message:
        hello = {
            "command": "hello",
            "version": PROTOCOL_VERSION,
            "package": package_version(),
            "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
            "start_time": _core.process_start_time(os.getpid()),
        }
        # A daemon that came up at the very end of the wait still gets a second to answer.
        remaining_s = deadline.remaining_s()
        limit_s = SILENCE_S if remaining_s is None else max(1.0, remaining_s)
        try:
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # refused before it was read: the answer says why
                send_message(sock, hello, Deadline(limit_s))
            answer, _ = receive_message(sock, Deadline(limit_s))
        except TimeoutError:
            raise self._silent(limit_s) from None
        return answer

    def _unavailable(self, failures: dict[str, OSError], deadline: Deadline) -> DaemonUnavailable:
        tried = "; ".join(f"{path}: {error.strerror or error}" for path, error in failures.items())
        waited = f" within {deadline.timeout_s:g} s" if deadline.timeout_s else ""
        return DaemonUnavailable(
            f"no shmreplayd answered{waited} ({tried}); start one with `shmreplayd --socket {self.paths[0]}`, "
            "or use sr.Server(tables=[...]), which starts its own"
        )

    def _hang_up(self, line: _Line) -> None:
        if line.sock is not None:
            line.sock.close()
            line.sock = None

    def close(self) -> None:
        line = self._own_line()
        with line.lock:
            self._hang_up(line)


def _has_ended(sock: socket.socket) -> bool:
    """Whether the other side has closed the socket. Between requests, that is all there can be to read."""
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLRDHUP)
    return bool(poll.poll(0))


def _owner_ids(sock: socket.socket, hello: Message) -> set[int]:
    """The users that may own this daemon's segments: the one that it runs as, by the kernel.

    If root listens for it (a socket unit of systemd), the kernel says root; then the daemon's own word counts, too.
    """
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid = int(struct.unpack("3i", credentials)[1])
    return {uid} if uid != 0 else {uid, int(hello["uid"])}


def _why_denied(path: str) -> str:
    """Says who may connect to a socket that this user may not connect to: its owner and perhaps its group."""
    where = path
    try:
        status = os.stat(path)
    except PermissionError:  # this user may not enter the directory; its group says who may
        where = os.path.dirname(path)
        status = os.stat(where)
    owner, group = user_name(status.st_uid), _group_name(status.st_gid)
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o070:
        return (
            f"permission denied for {path}: {where} is open to user {owner} and group {group} (mode {mode:04o}); "
            f"join group {group} (sudo usermod -aG {group} {user_name(os.geteuid())}, then log in anew)"
        )
    return (
        f"permission denied for {path}: {where} is open to user {owner} alone (mode {mode:04o}); "
        "start shmreplayd with --group NAME and join that group, or start one of your own"
    )


def user_name(uid: int) -> str:
    """The name of a user, or the number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
