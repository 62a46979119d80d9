"""ControlServer: accepts clients at the control socket."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from shmreplay.daemon.control.conversation import Conversation
from shmreplay.daemon.control.shared_state import SharedState
from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.daemon.loop.unix_listener import UnixListener

log = logging.getLogger("shmreplayd")

STOP_GRACE_S = 2.0  # for requests that are under way when the daemon stops
_NO_LISTENER = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP)
_REMEDIES = {
    errno.EMFILE: "raise LimitNOFILE= of its unit (ulimit -n)",
    errno.ENFILE: "raise fs.file-max (sysctl)",
    errno.ENOSPC: "raise fs.epoll.max_user_watches (sysctl)",
}


class ControlServer:
    """Runs a conversation with each client."""

    def __init__(self, listener: UnixListener, make_shared: Callable[[Callable[[], int]], SharedState]) -> None:
        self._listener = listener
        self._conversations: dict[asyncio.Task[None], Conversation] = {}
        self.shared = make_shared(lambda: len(self._conversations))
        self._one_ended = asyncio.Event()
        self._accepting: asyncio.Task[None] | None = None

    def start(self, on_failure: Callable[[str], None]) -> None:
        """Starts to accept clients. Calls `on_failure` if accepting fails."""
        self._listener.socket.setblocking(False)
        self._accepting = asyncio.ensure_future(self._accept())

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                on_failure(f"accepting clients failed: {task.exception()}")

        self._accepting.add_done_callback(ended)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._listener.socket)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno in _NO_LISTENER:
                    raise
                remedy = _REMEDIES.get(error.errno or 0, "see the kernel's log if that goes on")
                log.error("cannot accept a client: %s; trying again; %s", error, remedy)
                await self._wait_for_an_end()
                continue
            self._begin(sock)

    async def _wait_for_an_end(self) -> None:
        self._one_ended.clear()
        try:
            await within(1.0, self._one_ended.wait())
        except TimeoutError:
            log.debug("no client has left; trying to accept again, because other descriptors may be free now")

    def _begin(self, sock: socket.socket) -> None:
        try:
            conversation = Conversation(self.shared, sock)
        except OSError as error:
            log.warning("a client left before its credentials could be read: %s", error)
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
        """Accepts no more clients. Connected ones go on."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})

    async def close(self) -> None:
        """Ends all conversations. One with a request under way may first answer it, within STOP_GRACE_S."""
        for task, conversation in self._conversations.items():
            conversation.is_last = True
            if not conversation.is_busy:
                task.cancel()
        await self._wait_for_all(STOP_GRACE_S)
        for work in [*self._conversations, *self.shared.abandoned]:
            work.cancel()
        await self._wait_for_all(None)

    async def _wait_for_all(self, timeout_s: float | None) -> None:
        if self._conversations:
            await asyncio.wait(self._conversations, timeout=timeout_s)
