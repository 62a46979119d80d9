"""Site: answers a browser that looks at the page.

    GET  /                    the page
    GET  /api/stats           figures; `?items=1` also those that are known by looking at items
    POST /api/token           says whether the token is the right one
    POST /api/NAME            changes something (`actions.py`), with `Authorization: Bearer` and the token

Whoever reaches the address may look. A page of another site reaches it too, in the browser of somebody who works here,
so a request counts only if it is addressed to this machine by a name that no other has (else a name of that site might
have been made to lead here), and a change only if it comes from this page itself.
"""

from __future__ import annotations

import gzip
import json
import logging
import re

from shmreplay.daemon.control.commands import Commands
from shmreplay.daemon.loop.endpoint import Endpoint
from shmreplay.daemon.loop.http_server import HttpServer, Request, Response, refusal
from shmreplay.daemon.loop.workers import Workers
from shmreplay.daemon.web.actions import ACTIONS, act
from shmreplay.daemon.web.page import HEADERS, page
from shmreplay.daemon.web.page_token import PageToken
from shmreplay.daemon.web.stats_cache import StatsCache

log = logging.getLogger("shmreplayd")

# At any port: `ssh -L` has another one at its other end.
_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_JSON = "application/json"
_SMALL_BYTES = 4096  # packing less is not worth it


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
        self._page = page()
        self._server = HttpServer("the page", endpoint, group_id, self._answer)
        try:
            self._token = PageToken(token_path, group_id)
        except BaseException:
            self._server.close()
            raise

    async def start(self) -> None:
        """Answers from now on."""
        await self._server.start()
        log.info("a page to look at: %s; to change things it asks for the token in %s", self.address, self._token.path)

    @property
    def address(self) -> str:
        """Where the page is."""
        return self._server.address

    async def _answer(self, request: Request) -> Response:
        response = await self._response(request)
        return Response(response.status, response.kind, response.body, {**HEADERS, **response.headers})

    async def _response(self, request: Request) -> Response:
        if not _OWN_HOST.fullmatch(host := request.headers.get("host", "")):
            text = f"the page is to be asked for as one of 127.0.0.1, localhost, [::1], not as {host!r:.100}"
            return refusal("403 Forbidden", text)
        if request.path == "/":
            return self._page if request.method == "GET" else _not_allowed("GET")
        if request.path == "/api/stats":
            return await self._stats(request) if request.method == "GET" else _not_allowed("GET")
        action = request.path.removeprefix("/api/")
        if not request.path.startswith("/api/") or action not in (*ACTIONS, "token"):
            return refusal("404 Not Found", "there are /, /api/stats and /api/ with one of " + ", ".join(ACTIONS))
        if request.method != "POST":
            return _not_allowed("POST")
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
        """Answers nobody any more; the token is worth nothing from now on."""
        self._server.close()
        self._token.close()


def _check_change(request: Request, token: PageToken) -> Response | None:
    """Refuses what does not come from this page, or from a program, and what does not know the token."""
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{request.headers['host']}":
        return refusal("403 Forbidden", f"changes are not taken from {origin!r:.100}, which is another page")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return refusal("403 Forbidden", "changes are not taken from another site's page")
    if request.headers.get("content-type", "").partition(";")[0].strip() != _JSON:
        return refusal("415 Unsupported Media Type", f"a change is asked for by {_JSON}")
    if not token.is_in(request.headers.get("authorization", "")):
        text = f"the token is missing, or that of an earlier start; it is in {token.path}"
        return refusal("401 Unauthorized", text, {"WWW-Authenticate": "Bearer"})
    return None


def _not_allowed(method: str) -> Response:
    return refusal("405 Method Not Allowed", f"{method} alone", {"Allow": method})
