"""HttpServer: HTTP at a Unix socket or a loopback port, one request and one answer a connection."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.daemon.loop.endpoint import Endpoint
from shmreplay.daemon.loop.unix_listener import UnixListener
from shmreplay.errors import ShmReplayError

log = logging.getLogger("shmreplayd")

TIMEOUT_S = 10.0  # to receive a request, and again to send its answer
MAX_HEAD_BYTES = 16 * 2**10
MAX_BODY_BYTES = 64 * 2**10
MAX_DIGITS = 20  # of Content-Length; Python refuses to convert some thousands of digits
MAX_CONNECTIONS = 64  # at a time, so that HTTP clients cannot use up the descriptors that shmreplay clients need
TEXT = "text/plain; charset=utf-8"
# Names that always mean this machine, with any port: the other end of `ssh -L` may have another one.
_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_DECIDING = ("Host", "Content-Length", "Origin", "Authorization")  # a request with two of one of these is refused


@dataclass(frozen=True)
class Request:
    """A request. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Response:
    """An answer: a status such as `200 OK`, the content type, the body, and more headers."""

    status: str
    kind: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def packed(self) -> bytes:
        """The bytes to send."""
        fields = {
            "Content-Type": self.kind,
            "Content-Length": str(len(self.body)),
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + self.body


def refusal(status: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with one line of text that says why the request was refused."""
    return Response(status, TEXT, f"{text}\n".encode(), headers or {})


def check_host(request: Request) -> Response | None:
    """Refuses a request that names another host than this machine.

    A page of another site, in the browser of a user of this machine, can make its own name lead here, but not one of
    these.
    """
    host = request.headers.get("host", "")
    if _OWN_HOST.fullmatch(host):
        return None
    return refusal("403 Forbidden", f"the host is {host!r:.100}; expected one of 127.0.0.1, localhost, [::1]")


class HttpServer:
    """Listens as soon as it is made; answers after `start`.

    Args:
        what: name of what is served, for errors and the log, such as `metrics`.

    Raises ShmReplayError if it cannot listen there.
    """

    def __init__(
        self, what: str, endpoint: Endpoint, group_id: int | None, answer: Callable[[Request], Awaitable[Response]]
    ) -> None:
        self._what = what
        self._answer = answer
        self._file: UnixListener | None = None
        self._server: asyncio.AbstractServer | None = None
        self._num_connections = 0
        self._slow: dict[asyncio.StreamWriter, None] = {}  # connections that wait for their client, the oldest first
        if endpoint.path is not None:
            self._file = UnixListener(endpoint.path, group_id)
            self._listener = self._file.socket
        else:
            self._listener = _listen(what, endpoint)

    @property
    def address(self) -> str:
        """Where it listens: a path, or a URL such as `http://127.0.0.1:9464`."""
        name = self._listener.getsockname()
        if isinstance(name, str):
            return name
        return f"http://[{name[0]}]:{name[1]}" if ":" in name[0] else f"http://{name[0]}:{name[1]}"

    async def start(self) -> None:
        """Starts to answer."""
        start = asyncio.start_server if self._file is None else asyncio.start_unix_server
        self._server = await start(self._serve, sock=self._listener, limit=MAX_HEAD_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection: one request, one answer. A client that is too slow is disconnected."""
        if self._num_connections >= MAX_CONNECTIONS and not self._drop_slowest():
            writer.transport.abort()
            return
        self._num_connections += 1
        try:
            self._slow[writer] = None
            request = await self._receive(reader)
            self._slow.pop(writer, None)
            response = request if isinstance(request, Response) else await self._respond(request)
            self._slow[writer] = None
            writer.write(response.packed())
            writer.close()
            await within(TIMEOUT_S, writer.wait_closed())
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError) as error:
            log.debug("a connection for %s ended without an answer: %r", self._what, error)
        finally:
            self._num_connections -= 1
            self._slow.pop(writer, None)
            writer.transport.abort()  # does nothing if it is already closed

    def _drop_slowest(self) -> bool:
        """Makes room for a new connection: slow clients must not lock out the others. False if none is slow."""
        slowest = next(iter(self._slow), None)
        if slowest is None:
            return False
        del self._slow[slowest]
        slowest.transport.abort()
        log.debug("%s: the slowest of %d connections is dropped for a new one", self._what, MAX_CONNECTIONS)
        return True

    async def _receive(self, reader: asyncio.StreamReader) -> Request | Response:
        """The request, or the answer to what is none."""
        head = (await within(TIMEOUT_S, reader.readuntil(b"\r\n\r\n"))).decode("latin-1")
        request, *lines = head.rstrip("\r\n").split("\r\n")
        pairs = [line.partition(":") for line in lines]
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if doubled := _find_doubled([name for name, _, _ in pairs]):
            return refusal("400 Bad Request", f"{doubled} is there more than once; expected at most one")
        if "transfer-encoding" in headers:
            return refusal("411 Length Required", "a body needs a Content-Length")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            return refusal("400 Bad Request", f"Content-Length is {length!r:.100}; expected a number of bytes")
        if len(length) > MAX_DIGITS or int(length) > MAX_BODY_BYTES:
            return refusal("413 Content Too Large", f"the body is too long; expected at most {MAX_BODY_BYTES} bytes")
        body = await within(TIMEOUT_S, reader.readexactly(int(length)))
        method, _, rest = request.partition(" ")
        path, _, query = rest.split(" ")[0].partition("?")
        return Request(method, path, dict(urllib.parse.parse_qsl(query)), headers, body)

    async def _respond(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except Exception:  # a fault of ours: the client still gets an answer
            log.exception("%s: the request for %s failed", self._what, request.path)
            return refusal("500 Internal Server Error", "internal error; see shmreplayd's log, and please report it")

    def close(self) -> None:
        """Stops answering and listening."""
        if self._server is not None:
            self._server.close()
        self._listener.close()
        if self._file is not None:
            self._file.close()


def _find_doubled(names: list[str]) -> str | None:
    """A header of `_DECIDING` that is there twice: a proxy in front might have used the other one."""
    found = [name.strip().lower() for name in names]
    return next((name for name in _DECIDING if found.count(name.lower()) > 1), None)


def _listen(what: str, endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((endpoint.host, endpoint.port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ShmReplayError(
            f"cannot listen for {what} at {endpoint}: {error.strerror}; choose another port"
        ) from error
    return listener
