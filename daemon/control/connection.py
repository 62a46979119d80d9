"""Connection: sends and receives whole messages on the event loop, within limits of size and time.

A request is answered before the next one is read, so at most one answer waits to be sent.
"""

from __future__ import annotations

import array
import asyncio
import socket
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.daemon.loop.workers import Workers
from shmreplay.protocol import HEADER_BYTES, Message, body_length, unpack

Result = TypeVar("Result")

MESSAGE_TIMEOUT_S = 30.0  # to receive the rest of a message after its first byte, and to send an answer
_RECEIVE_BYTES = 256 * 2**10
_LARGE_BYTES = 64 * 2**10  # larger messages are decoded on a worker, not to hold up the event loop


class Dropped(Exception):
    """The connection cannot go on. The client cannot be told, so only the log says why."""


class Connection:
    """Owns the non-blocking socket."""

    def __init__(self, sock: socket.socket, workers: Workers, timeout_s: float = MESSAGE_TIMEOUT_S) -> None:
        self.sock = sock
        self._workers = workers
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()

    async def receive(self, limit: int, wait_s: float | None = None) -> Message | None:
        """Returns the next message, None if the client has closed. Waits `wait_s` for its first byte; None: no limit.

        Raises Dropped if the message is cut off or too slow, ProtocolError if it is too long or garbage.
        """
        first = await self._within(wait_s, self._loop.sock_recv(self.sock, HEADER_BYTES), "sent nothing")
        if not first:
            return None
        body = await self._within(self._timeout_s, self._rest(first, limit), "did not finish its message")
        return await self._workers.run(unpack, body) if len(body) >= _LARGE_BYTES else unpack(body)

    async def _rest(self, first: bytes, limit: int) -> bytes:
        header = first + await self._exactly(HEADER_BYTES - len(first))
        return await self._exactly(body_length(header, limit))

    async def _exactly(self, num_bytes: int) -> bytes:
        received = bytearray()  # grows with the bytes that arrive, not to the size announced
        while len(received) < num_bytes:
            piece = await self._loop.sock_recv(self.sock, min(num_bytes - len(received), _RECEIVE_BYTES))
            if not piece:
                raise Dropped("closed in the middle of a message")
            received += piece
        return bytes(received)

    async def send(self, packed: bytes, fds: Sequence[int] = ()) -> None:
        """Sends one packed message, with descriptors. Raises Dropped if the client does not receive it."""
        await self._within(self._timeout_s, self._send_all(memoryview(packed), fds), "did not take its answer")

    async def _send_all(self, data: memoryview, fds: Sequence[int]) -> None:
        if fds:
            data = data[await self._send_first(data, fds) :]
        await self._loop.sock_sendall(self.sock, data)

    async def _send_first(self, data: memoryview, fds: Sequence[int]) -> int:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        while True:
            try:
                return self.sock.sendmsg([data], rights)
            except BlockingIOError:
                await self._writable()

    async def _writable(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()

        def writable() -> None:
            if not future.done():
                future.set_result(None)

        self._loop.add_writer(self.sock, writable)
        try:
            await future
        finally:
            self._loop.remove_writer(self.sock)

    async def _within(self, timeout_s: float | None, work: Coroutine[Any, Any, Result], failing: str) -> Result:
        try:
            return await within(timeout_s, work)
        except TimeoutError:
            raise Dropped(f"{failing} for {timeout_s:g} s") from None
        except OSError as error:
            raise Dropped(f"lost: {error}") from error

    def close(self) -> None:
        self.sock.close()
