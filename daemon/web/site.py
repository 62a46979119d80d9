"""Site: serves the web page.

    GET  /                    the page; its style and scripts are beside it, such as /main.js
    GET  /api/stats           figures; with `?items=1` also those of items
    GET  /api/token           the path of the file with the token
    POST /api/token           checks the token
    POST /api/NAME            changes something (see `actions.py`); needs `Authorization: Bearer` and the token

Everybody who reaches the address may look. A page of another site reaches it as well, through the browser of a user of
this machine. So a request must name this machine as its host, by a name that always means this machine: another site
cannot make its own name lead here. A change must also come from this page itself.
"""

from __future__ import annotations

import gzip
import json
import logging

from shmreplay.daemon.control.commands import Commands
from shmreplay.daemon.loop.endpoint import Endpoint
from shmreplay.daemon.loop.http_server import HttpServer, Request, Response, check_host, refusal
from shmreplay.daemon.loop.workers import Workers
from shmreplay.daemon.web.actions import ACTIONS, act
from shmreplay.daemon.web.page import HEADERS, page_files
from shmreplay.daemon.web.page_token import PageToken
from shmreplay.daemon.web.stats_cache import StatsCache

log = logging.getLogger("shmreplayd")

_JSON = "application/json"
_SMALL_BYTES = 4096  # a smaller answer is not worth compressing


class Site:
    """Listens as soon as it is made; answers after `start`.

    Raises ShmReplayError if it cannot listen there, or the token cannot be written.
    """

    def __init__(
        self, endpoint: Endpoint, group_id: int | None, token_path: str, commands: Commands, workers: Workers
    ) -> None:
        self._commands = commands
        self._workers = workers
        self._stats_cache = StatsCache(commands.stats, workers)
        self._files = page_files()
        self._server = HttpServer("the page", endpoint, group_id, self._answer)
        try:
            self._token = PageToken(token_path, group_id)
        except BaseException:
            self._server.close()
            raise

    async def start(self) -> None:
        """Starts to answer."""
        await self._server.start()
        log.info("web page: %s; to change things it asks for the token in %s", self.address, self._token.path)

    @property
    def address(self) -> str:
        """The address of the page."""
        return self._server.address

    async def _answer(self, request: Request) -> Response:
        response = await self._response(request)
        return Response(response.status, response.kind, response.body, {**HEADERS, **response.headers})

    async def _response(self, request: Request) -> Response:
        if (refused := check_host(request)) is not None:
            return refused
        if file := self._files.get(request.path):
            return file if request.method == "GET" else _not_allowed("GET")
        if request.path == "/api/stats":
            return await self._stats(request) if request.method == "GET" else _not_allowed("GET")
        action = request.path.removeprefix("/api/")
        if not request.path.startswith("/api/") or action not in (*ACTIONS, "token"):
            return refusal("404 Not Found", "expected /, /api/stats, or /api/ and one of " + ", ".join(ACTIONS))
        if action == "token" and request.method == "GET":
            return Response("200 OK", _JSON, json.dumps({"path": self._token.path}).encode())
        if request.method != "POST":
            return _not_allowed("GET, POST" if action == "token" else "POST")
        return _check_change(request, self._token) or await self._change(action, request.body)

    async def _stats(self, request: Request) -> Response:
        body = await self._stats_cache.read(request.query.get("items") == "1")
        if len(body) < _SMALL_BYTES or "gzip" not in request.headers.get("accept-encoding", ""):
            return Response("200 OK", _JSON, body)
        packed = await self._workers.run(lambda: gzip.compress(body, 1))
        return Response("200 OK", _JSON, packed, {"Content-Encoding": "gzip"})

    async def _change(self, action: str, body: bytes) -> Response:
        if action == "token":
            return Response("200 OK", _JSON, b'{"ok": true}')
        done = await act(self._commands, action, body)
        self._stats_cache.forget()
        return Response(done.status, _JSON, json.dumps(done.fields).encode())

    def close(self) -> None:
        """Stops answering, and removes the token."""
        self._server.close()
        self._token.close()


def _check_change(request: Request, token: PageToken) -> Response | None:
    """Refuses a change from another site's page, or without the token. Programs, which send no Origin, may change."""
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{request.headers['host']}":
        return refusal("403 Forbidden", f"changes are refused from {origin!r:.100}, which is another page")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return refusal("403 Forbidden", "changes are refused from another site's page")
    if request.headers.get("content-type", "").partition(";")[0].strip() != _JSON:
        return refusal("415 Unsupported Media Type", f"expected a body of type {_JSON}")
    if not token.is_in(request.headers.get("authorization", "")):
        text = f"the token is missing, or of an earlier start of the daemon; it is in {token.path}"
        return refusal("401 Unauthorized", text, {"WWW-Authenticate": "Bearer"})
    return None


def _not_allowed(method: str) -> Response:
    return refusal("405 Method Not Allowed", f"expected {method}", {"Allow": method})
