"""Connection: the sockets to a daemon, connected when needed, and again after a fork or a restart of the daemon."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import select
import socket
import stat
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shmreplay import _core
from shmreplay.base.processes import own_namespace
from shmreplay.base.user_names import user_name
from shmreplay.clients.link.daemon_user import check_place, daemon_user, owners_of_segments
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
LOG_AFTER_S = 10.0  # of a request under way
LOG_CONNECTING_AFTER_S = 1.0
MAX_FRESH_FAILURES = 3  # if so many daemons in a row died during a request, the request is what kills them
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.1

logger = logging.getLogger("shmreplay")

_fork_count = 0


def fork_count() -> int:
    """The number of forks between this process and the one that imported shmreplay."""
    return _fork_count


class RequestTimeout(ShmReplayError, TimeoutError):
    """The caller's time was up while the daemon still worked on the request."""


@dataclass(frozen=True)
class Reply:
    """An answer: its fields, the descriptors that came with it (the caller closes them), and their allowed owners."""

    fields: Message
    fds: list[int] = field(default_factory=list)
    owner_ids: set[int] = field(default_factory=set)


@dataclass(eq=False)
class _Line:
    """One socket, which carries one request at a time, and what the daemon said in its hello."""

    sock: socket.socket
    hello: Message

    def __post_init__(self) -> None:
        _lines.add(self)

    def __del__(self) -> None:
        self.sock.close()  # a client that is garbage without a close: no reason for a ResourceWarning

    @property
    def is_over(self) -> bool:
        """Whether one of both sides has closed it. Between requests, that is all there can be to read."""
        if self.sock.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLRDHUP)
        return bool(poll.poll(0))


_lines = weakref.WeakSet[_Line]()


def _after_fork() -> None:
    global _fork_count
    _fork_count += 1
    for line in list(_lines):
        line.sock.close()  # closes only our copy; the parent keeps its connections


os.register_at_fork(after_in_child=_after_fork)


class Connection:
    """Requests to one daemon. `timeout_s` limits the wait for a daemon to answer.

    A request takes a socket that is free, or connects another one. So a request never waits for one of another thread,
    or for the one that a signal handler has interrupted. There is no lock, which the handler could find taken: `_free`
    only changes by one operation of a list at a time. One free socket is kept.

    `paths` are tried in turn until a daemon answers at one of them, which is then kept.
    """

    def __init__(self, paths: Sequence[str], timeout_s: float | None) -> None:
        self.paths = list(paths)
        self.timeout_s = timeout_s
        self._free: list[_Line] = []
        self._is_closed = False
        self._user: int | None = None  # that the daemon runs as, since the first connection

    def connect(self) -> Message:
        """Connects unless connected, and returns the daemon's hello. Raises DaemonUnavailable or PermissionError."""
        line = self._free_line() or self._connect(Deadline(self.timeout_s))
        self._keep(line)
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
        patience_s = self.timeout_s if waits_for_daemon else 0.0
        reply = self._exchange(message, Deadline(timeout_s), patience_s, takes_fds, is_repeatable, on_progress)
        raise_answered_error(reply.fields)
        return reply

    def _exchange(
        self,
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
            line = self._free_line()
            is_fresh = line is None
            if line is None:
                line = self._connect(patience if fresh_failures else Deadline(patience_s))
            try:
                answer, fds = self._ask(line.sock, message, deadline, takes_fds, on_progress)
                reply = Reply(answer, fds, owners_of_segments(line.sock, line.hello))
            except DaemonUnavailable:
                line.sock.close()
                raise
            except ConnectionError as error:
                line.sock.close()
                fresh_failures += 1 if is_fresh else 0
                if not is_repeatable or (is_fresh and (patience.is_over or fresh_failures == MAX_FRESH_FAILURES)):
                    raise DaemonUnavailable(
                        f"the shmreplayd at {self.paths[0]} closed the connection during {message['command']}; "
                        "it was stopped or killed, see its log"
                    ) from error
            except BaseException:  # after a Ctrl-C or a timeout, the answer would be taken for that of the next request
                line.sock.close()
                raise
            else:
                self._keep(line)
                return reply

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

    def _free_line(self) -> _Line | None:
        """A line whose daemon still runs: a request that must not be repeated is never sent to one that has ended."""
        while self._free:
            try:
                line = self._free.pop()
            except IndexError:  # another thread was faster
                break
            if not line.is_over:
                return line
            line.sock.close()
        return None

    def _keep(self, line: _Line) -> None:
        """Keeps a line for the next request. Closes it if there is one already, or the client was closed meanwhile."""
        if self._free:
            line.sock.close()
            return
        self._free.append(line)
        if self._is_closed:
            self._close_free()

    def _close_free(self) -> None:
        while (line := self._free_line()) is not None:
            line.sock.close()

    def _connect(self, deadline: Deadline) -> _Line:
        """Tries again and again while a daemon starts: no event tells that a socket begins to listen."""
        pause_s, was_denied = FIRST_PAUSE_S, False
        started, is_logged = time.monotonic(), False
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
                try:
                    raise_answered_error(hello)
                    self._check_user(path, daemon_user(sock, hello))
                except BaseException:
                    sock.close()
                    raise
                self.paths = [path]
                return _Line(sock, hello)
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
            if not is_logged and time.monotonic() - started >= LOG_CONNECTING_AFTER_S:
                is_logged = True
                _log_connecting(f"no shmreplayd answers yet ({_tried(failures)})", deadline)
            remaining_s = deadline.remaining_s()
            time.sleep(pause_s if remaining_s is None else min(pause_s, remaining_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _try_path(self, path: str, deadline: Deadline) -> tuple[socket.socket, Message]:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(path)
            return sock, self._say_hello(sock, path, deadline)
        except BaseException:
            sock.close()
            raise

    def _say_hello(self, sock: socket.socket, path: str, deadline: Deadline) -> Message:
        hello = {
            "command": "hello",
            "version": PROTOCOL_VERSION,
            "package": package_version(),
            "pid_namespace": own_namespace("pid"),
            "start_time": _core.process_start_time(os.getpid()),
        }
        # A daemon that came up at the very end of the wait still gets a second to answer.
        remaining_s = deadline.remaining_s()
        limit_s = SILENCE_S if remaining_s is None else max(1.0, remaining_s)
        limit = Deadline(limit_s)
        try:
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # refused before it was read: the answer says why
                send_message(sock, hello, limit)
            if limit_s > LOG_CONNECTING_AFTER_S and not _can_read(sock, LOG_CONNECTING_AFTER_S):
                _log_connecting(f"the shmreplayd at {path} has a socket, but says nothing yet", deadline)
            answer, _ = receive_message(sock, limit)
        except TimeoutError:
            raise self._silent(limit_s) from None
        return answer

    def _unavailable(self, failures: dict[str, OSError], deadline: Deadline) -> DaemonUnavailable:
        waited = f" within {deadline.timeout_s:g} s" if deadline.timeout_s else ""
        return DaemonUnavailable(
            f"no shmreplayd answered{waited} ({_tried(failures)}); start one with `shmreplayd --socket "
            f"{self.paths[0]}`, or use sr.Server(tables=[...]), which starts its own"
        )

    def _check_user(self, path: str, user: int) -> None:
        """Raises PermissionError if another user's daemon is at the path now, or anybody could put one there."""
        if self._user is None:
            check_place(path, user)
            self._user = user
        elif self._user != user:
            raise PermissionError(
                f"the shmreplayd at {path} runs as user {user_name(user)}, the one that this client knows ran as "
                f"{user_name(self._user)}: another user may have taken the path; if that is meant, connect anew"
            )

    def close(self) -> None:
        """Closes the sockets. One that carries a request of another thread is closed after that."""
        self._is_closed = True
        self._close_free()


def _tried(failures: dict[str, OSError]) -> str:
    return "; ".join(f"{path}: {error.strerror or error}" for path, error in failures.items())


def _log_connecting(why: str, deadline: Deadline) -> None:
    """Says once that a client waits for its daemon, and for how long."""
    until = "until one does" if deadline.timeout_s is None else f"for up to {deadline.timeout_s:g} s"
    logger.warning("%s; waiting %s (timeout_s)", why, until)


def _can_read(sock: socket.socket, timeout_s: float) -> bool:
    """Whether something arrives within that time."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _why_denied(path: str) -> str:
    """Says who may connect to a socket that this user may not connect to: its owner and perhaps its group."""
    where = os.path.abspath(path)
    while True:  # up to the directory that this user may not enter: its owner and group say who may
        try:
            status = os.stat(where)
            break
        except PermissionError:
            where = os.path.dirname(where)
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


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
