"""The control socket: its file, and accepting those who connect."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
from collections.abc import Callable

from shmreplay.daemon.control.conversation import Conversation, Host
from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.errors import ShmReplayError

log = logging.getLogger("shmreplayd")

BACKLOG = 1024  # hundreds of actors start at the same moment
STOP_GRACE_S = 2.0  # for answers that are being worked on when the daemon stops
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ControlSocket:
    """A listening socket at a path, open to this user alone or to a group.

    Args:
        passed: one that somebody else listens with already, at that path: its mode, its group and its file are theirs.

    Raises ShmReplayError if a daemon listens there already or the path is something else.
    """

    def __init__(self, path: str, group_id: int | None, passed: socket.socket | None = None) -> None:
        self.path = path
        self._inode = 0  # of the file that is ours to remove; 0: none is
        if passed is not None:
            self.listener = passed
            return
        self._remove_stale()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.listener.bind(path)
            self._inode = os.lstat(path).st_ino
            # Nobody can connect before listen, so there is no moment at which the umask decides.
            if group_id is not None:
                os.chown(path, -1, group_id)
            os.chmod(path, 0o600 if group_id is None else 0o660)
            self.listener.listen(BACKLOG)
        except OSError as error:
            self.close()
            raise ShmReplayError(f"cannot listen at {path}: {error}") from error

    def _remove_stale(self) -> None:
        try:
            mode = os.lstat(self.path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise ShmReplayError(f"cannot listen at {self.path}: a file of another kind is there; remove it")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
                return
            except OSError as error:
                raise ShmReplayError(f"cannot listen at {self.path}: {error}") from error
        raise ShmReplayError(f"another daemon listens at {self.path}; stop it, or choose another --socket")

    def close(self) -> None:
        """Stops listening and removes the file that is ours, unless another daemon has put its own there."""
        self.listener.close()
        if not self._inode:
            return
        try:
            if os.lstat(self.path).st_ino == self._inode:
                os.unlink(self.path)
        except FileNotFoundError:
            log.warning("the socket %s had been removed by somebody else", self.path)


class ControlServer:
    """Accepts clients and keeps a conversation with each."""

    def __init__(self, control_socket: ControlSocket, make_host: Callable[[Callable[[], int]], Host]) -> None:
        self._socket = control_socket
        self._conversations: dict[asyncio.Task[None], Conversation] = {}
        self.host = make_host(lambda: len(self._conversations))
        self._one_ended = asyncio.Event()
        self._accepting: asyncio.Task[None] | None = None

    def start(self, on_failure: Callable[[str], None]) -> None:
        """Accepts from now on; calls `on_failure` if that ends by an error."""
        self._socket.listener.setblocking(False)
        self._accepting = asyncio.ensure_future(self._accept())

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                on_failure(f"accepting clients failed: {task.exception()}")

        self._accepting.add_done_callback(ended)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._socket.listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                log.error("cannot accept a client: %s; raise LimitNOFILE (ulimit -n)", error)
                await self._wait_for_an_end()
                continue
            self._begin(sock)

    async def _wait_for_an_end(self) -> None:
        self._one_ended.clear()
        try:
            await within(1.0, self._one_ended.wait())
        except TimeoutError:
            log.debug("no client has left; trying to accept again, for descriptors are freed elsewhere too")

    def _begin(self, sock: socket.socket) -> None:
        try:
            conversation = Conversation(self.host, sock)
        except OSError as error:
            log.warning("a client left before it could be asked who it is: %s", error)
            sock.close()
            return
        task = asyncio.ensure_future(conversation.run())
        self._conversations[task] = conversation
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._conversations[task]
        self._one_ended.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("a conversation failed", exc_info=task.exception())

    async def stop_accepting(self) -> None:
        """Takes no new clients; those who are there go on."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})

    async def close(self) -> None:
        """Ends the conversations, those that are being answered after their answer or a short while."""
        for task, conversation in self._conversations.items():
            conversation.is_last = True
            if not conversation.is_busy:
                task.cancel()
        await self._wait_for_all(STOP_GRACE_S)
        for work in [*self._conversations, *self.host.abandoned]:
            work.cancel()
        await self._wait_for_all(None)

    async def _wait_for_all(self, timeout_s: float | None) -> None:
        if self._conversations:
            await asyncio.wait(self._conversations, timeout=timeout_s)
