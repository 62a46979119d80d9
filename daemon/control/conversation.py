"""Conversation: serves one client. First hello, then requests one at a time, until it leaves or breaks the protocol."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from shmreplay import _core
from shmreplay.daemon.arenas.access import open_peer_pidfd, peer_of
from shmreplay.daemon.arenas.reaper import ClientProcess
from shmreplay.daemon.config.open_files import blame_daemon
from shmreplay.daemon.control.commands import Answer, Caller
from shmreplay.daemon.control.connection import Connection, Dropped
from shmreplay.daemon.control.shared_state import SharedState, Work
from shmreplay.errors import EXPECTED_ERRORS
from shmreplay.protocol import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Message,
    ProtocolError,
    close_all,
    error_answer,
    pack,
    package_version,
)

log = logging.getLogger("shmreplayd")

HELLO_BYTES = 4096  # a client may not make us buffer more before hello
PROGRESS_S = 1.0  # how often a client hears about the progress of its request


class Conversation:
    """Owns the client's socket."""

    def __init__(self, shared: SharedState, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._shared = shared
        self._peer = peer_of(sock)
        self._connection = Connection(sock, shared.workers, shared.message_timeout_s)
        self._start_time = 0
        self._describe: Callable[[], str] = str
        self.is_busy = False
        self.is_last = False  # set to end the conversation after the current answer

    async def run(self) -> None:
        """Serves the client until it leaves. Tells a client that is refused why."""
        try:
            await self._talk()
        except Dropped as reason:
            log.info("dropped %s: %s", self._peer, reason)
        except (ProtocolError, PermissionError) as error:
            log.warning("refused %s: %s", self._peer, error)
            await self._refuse(error)
        finally:
            self._connection.close()

    async def _refuse(self, error: Exception) -> None:
        try:
            await self._connection.send(pack(error_answer(error)))
        except Dropped as reason:
            log.debug("%s could not be told why it was refused: %s", self._peer, reason)

    async def _talk(self) -> None:
        hello = await self._connection.receive(HELLO_BYTES, self._shared.message_timeout_s)
        if hello is None:
            return
        await self._connection.send(pack(self._greet(hello)))
        while not self.is_last:
            request = await self._connection.receive(MAX_MESSAGE_BYTES)
            if request is None:
                return
            self.is_busy = True
            await self._answer(request)
            self.is_busy = False

    def _greet(self, hello: Message) -> Message:
        """The answer to hello. Raises ProtocolError or PermissionError if this client cannot be served."""
        if hello.get("command") != "hello":
            raise ProtocolError("the first message must be hello")
        if hello.get("version") != PROTOCOL_VERSION:
            raise ProtocolError(
                f"shmreplayd {package_version()} speaks version {PROTOCOL_VERSION} of the control protocol, the client "
                f"version {hello.get('version')!r:.20}; install the same shmreplay on both sides and restart the older"
            )
        shared = self._shared
        shared.access.check_credentials(self._peer)
        shared.access.check_namespace(self._peer, hello.get("pid_namespace"))
        if shared.num_clients() > shared.max_clients:
            raise ProtocolError(
                f"shmreplayd already serves {shared.max_clients} clients, its maximum; "
                "raise limits.clients (--max-clients), or the daemon's limit of open files (LimitNOFILE, ulimit -n)"
            )
        self._start_time = self._find_start_time(hello)
        return {
            "ok": True,
            "version": PROTOCOL_VERSION,
            "package": package_version(),
            "layout_version": _core.LAYOUT_VERSION,
            "layout_hash": _core.layout_hash(),
            "instance": shared.instance,
            "incarnation": shared.incarnation,
            "pid": os.getpid(),
            "uid": os.geteuid(),
        }

    def _find_start_time(self, hello: Message) -> int:
        """The start time of the client's process, from the kernel; from the client's hello if hidepid hides it.

        Raises PermissionError if the two differ: another process has got the pid since.
        """
        claimed = hello.get("start_time")
        if not isinstance(claimed, int) or not 0 <= claimed < 2**63:
            claimed = 0
        found = _core.process_start_time(self._peer.pid)
        if found and claimed and found != claimed:
            raise PermissionError(
                f"process {self._peer.pid} says that it started at tick {claimed}, the kernel says {found}: it has "
                "ended and another one has its pid, or it is in another time namespace, which clients must share"
            )
        return found or claimed

    async def _answer(self, request: Message) -> None:
        """Carries out a request and answers it. Sends progress messages while it takes long."""
        self._describe = lambda: "waiting"
        work = asyncio.ensure_future(self._carry_out(request))
        try:
            while not (await asyncio.wait({work}, timeout=PROGRESS_S))[0]:
                await self._connection.send(pack({"progress": self._describe()}))
        except BaseException:
            self._abandon(work)
            raise
        packed, answer = work.result()
        try:
            await self._connection.send(packed, answer.fds)
        finally:
            close_all(answer.fds)
        if answer.after is not None:
            answer.after()

    async def _carry_out(self, request: Message) -> Work:
        """Runs the command. Packs its answer, or its error."""
        caller = Caller(self._peer, self._watch, self._set_progress)
        try:
            answer = await self._shared.commands.run(request, caller)
            return pack({"ok": True, **answer.fields}), answer
        except EXPECTED_ERRORS as error:
            blamed = blame_daemon(error)
            if blamed is not error:
                log.error("%s", blamed)
            return pack(error_answer(blamed)), Answer()
        except Exception as error:  # a fault of ours must not stop the daemon for the other clients
            log.exception("a command of %s failed", self._peer)
            return pack(error_answer(error)), Answer()

    def _watch(self) -> ClientProcess:
        """Starts to watch the client's process. Raises ProcessLookupError if it has ended.

        Also refuses an unknown start time: a process that can read the start time would take the session for dead.
        """
        if not self._start_time:
            raise PermissionError(
                f"neither side can read the start time of process {self._peer.pid}: mount /proc for both"
            )
        pidfd = open_peer_pidfd(self._connection.sock, self._peer, self._start_time)
        return self._shared.reaper.watch(self._peer.pid, self._start_time, pidfd)

    def _set_progress(self, describe: Callable[[], str]) -> None:
        self._describe = describe

    def _abandon(self, work: asyncio.Task[Work]) -> None:
        """The client has left. The request is still carried out in full, and its descriptors are closed."""
        self._shared.abandoned.add(work)

        def ended(work: asyncio.Task[Work]) -> None:
            self._shared.abandoned.discard(work)
            if not work.cancelled():
                close_all(work.result()[1].fds)

        work.add_done_callback(ended)
