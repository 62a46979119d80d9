"""Where Prometheus asks for metrics: `GET /metrics` at a Unix socket, or at a port of this machine alone."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client.exposition import choose_encoder

from shmreplay.daemon.bounded_wait import within
from shmreplay.daemon.control import ControlSocket
from shmreplay.daemon.metrics import Snapshot
from shmreplay.daemon.setting import Endpoint
from shmreplay.daemon.workers import Workers
from shmreplay.errors import ShmReplayError

log = logging.getLogger("shmreplayd")

TIMEOUT_S = 10.0  # for a request to come, and for an answer to be taken
MAX_HEAD_BYTES = 16 * 2**10
_TEXT = "text/plain; charset=utf-8"


class Exposition:
    """Listens from the start on, and answers once `start` was called.

    Raises ShmReplayError if it cannot listen there.
    """

    def __init__(
        self, endpoint: Endpoint, group_id: int | None, stats: Callable[[], Awaitable[dict[str, Any]]], workers: Workers
    ) -> None:
        self._stats = stats
        self._workers = workers
        self._turn = asyncio.Lock()  # who asks ten times at once does not keep ten threads
        self._file: ControlSocket | None = None
        self._server: asyncio.AbstractServer | None = None
        if endpoint.path is not None:
            self._file = ControlSocket(endpoint.path, group_id)
            self._listener = self._file.listener
        else:
            self._listener = _listen(endpoint)

    async def start(self) -> None:
        """Answers from now on."""
        start = asyncio.start_server if self._file is None else asyncio.start_unix_server
        self._server = await start(self._serve, sock=self._listener, limit=MAX_HEAD_BYTES)
        name = self._listener.getsockname()
        log.info("metrics at %s", name if isinstance(name, str) else f"http://{name[0]}:{name[1]}/metrics")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer."""
        try:
            head = await within(TIMEOUT_S, reader.readuntil(b"\r\n\r\n"))
            writer.write(await self._answer(head.decode("latin-1")))
            await within(TIMEOUT_S, writer.drain())
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError) as error:
            log.debug("a request for metrics came to nothing: %r", error)
        finally:
            writer.close()

    async def _answer(self, head: str) -> bytes:
        request, *lines = head.split("\r\n")
        method, _, rest = request.partition(" ")
        if rest.split(" ")[0].partition("?")[0] != "/metrics":
            return _response("404 Not Found", _TEXT, b"metrics are at /metrics\n")
        if method != "GET":
            return _response("405 Method Not Allowed", _TEXT, b"GET alone is answered\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        encode, kind = choose_encoder(headers.get("accept", ""))
        async with self._turn:
            snapshot = Snapshot(await self._stats())
            return _response("200 OK", kind, await self._workers.run(encode, snapshot))

    def close(self) -> None:
        """Answers nobody any more."""
        if self._server is not None:
            self._server.close()
        self._listener.close()
        if self._file is not None:
            self._file.close()


def _listen(endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((endpoint.host, endpoint.port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ShmReplayError(f"metrics cannot be had at {endpoint}: {error.strerror}; choose another port") from error
    return listener


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("latin-1") + body
