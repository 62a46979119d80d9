"""Exposition: answers Prometheus, `GET /metrics`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client.exposition import choose_encoder

from shmreplay.daemon.figures.metrics import Snapshot
from shmreplay.daemon.loop.endpoint import Endpoint
from shmreplay.daemon.loop.http_server import HttpServer, Request, Response, check_host, refusal
from shmreplay.daemon.loop.workers import Workers

log = logging.getLogger("shmreplayd")


class Exposition:
    """Listens as soon as it is made; answers after `start`.

    Raises ShmReplayError if it cannot listen there.
    """

    def __init__(
        self, endpoint: Endpoint, group_id: int | None, stats: Callable[[], Awaitable[dict[str, Any]]], workers: Workers
    ) -> None:
        self._stats = stats
        self._workers = workers
        self._at_port = endpoint.path is None  # browsers reach no Unix sockets
        self._turn = asyncio.Lock()  # ten requests at once take one thread, not ten
        self._server = HttpServer("metrics", endpoint, group_id, self._answer)

    async def start(self) -> None:
        """Starts to answer."""
        await self._server.start()
        address = self._server.address
        log.info("metrics at %s", address if address.startswith("/") else f"{address}/metrics")

    async def _answer(self, request: Request) -> Response:
        if self._at_port and (refused := check_host(request)) is not None:
            return refused
        if request.path != "/metrics":
            return refusal("404 Not Found", "metrics are at /metrics")
        if request.method != "GET":
            return refusal("405 Method Not Allowed", "expected GET")
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        async with self._turn:
            snapshot = Snapshot(await self._stats())
            return Response("200 OK", kind, await self._workers.run(encode, snapshot))

    def close(self) -> None:
        """Stops answering and listening."""
        self._server.close()
