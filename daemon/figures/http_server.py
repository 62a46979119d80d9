"""HTTP at a Unix socket, or at a port of this machine alone: one request a connection, and one answer."""

from __future__ import annotations

import asyncio
import logging
import socket
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from shmreplay.daemon.config.setting_kind import Endpoint
from shmreplay.daemon.control.control import ControlSocket
from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.errors import ShmReplayError

log = logging.getLogger("shmreplayd")

TIMEOUT_S = 10.0  # for a request to come, and for an answer to be taken
MAX_HEAD_BYTES = 16 * 2**10
MAX_BODY_BYTES = 64 * 2**10
MAX_DIGITS = 20  # of a length: Python converts no more than some thousand
MAX_CONNECTIONS = 64  # at a time: whoever reaches the port must not use up the descriptors of clients
TEXT = "text/plain; charset=utf-8"
_DECIDING = ("Host", "Content-Length", "Origin", "Authorization")  # headers by which requests are told apart


@dataclass(frozen=True)
class Request:
    """What was asked for; names of headers are in small letters."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Response:
    """What is answered: a status such as `200 OK`, the type of the body, the body, and further headers."""

    status: str
    kind: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def packed(self) -> bytes:
        """As it is sent."""
        fields = {
            "Content-Type": self.kind,
            "Content-Length": str(len(self.body)),
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + self.body


def refusal(status: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that says in one line why there is no other."""
    return Response(status, TEXT, f"{text}\n".encode(), headers or {})


class HttpServer:
    """Listens from the start on, and answers once `start` was called.

    Args:
        what: is served, as errors and the log call it: `metrics`.

    Raises ShmReplayError if it cannot listen there.
    """

    def __init__(
        self, what: str, endpoint: Endpoint, group_id: int | None, answer: Callable[[Request], Awaitable[Response]]
    ) -> None:
        self._what = what
        self._answer = answer
        self._file: ControlSocket | None = None
        self._server: asyncio.AbstractServer | None = None
        self._num_connections = 0
        if endpoint.path is not None:
            self._file = ControlSocket(endpoint.path, group_id)
            self._listener = self._file.listener
        else:
            self._listener = _listen(what, endpoint)

    @property
    def address(self) -> str:
        """Where it listens: the path, or `http://127.0.0.1:9464`."""
        name = self._listener.getsockname()
        if isinstance(name, str):
            return name
        return f"http://[{name[0]}]:{name[1]}" if ":" in name[0] else f"http://{name[0]}:{name[1]}"

    async def start(self) -> None:
        """Answers from now on."""
        start = asyncio.start_server if self._file is None else asyncio.start_unix_server
        self._server = await start(self._serve, sock=self._listener, limit=MAX_HEAD_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer. Who does not ask or take it in time loses the connection, and its descriptor."""
        self._num_connections += 1
        try:
            if self._num_connections <= MAX_CONNECTIONS:
                writer.write((await self._response(reader)).packed())
            writer.close()
            await within(TIMEOUT_S, writer.wait_closed())
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError) as error:
            log.debug("a request for %s came to nothing: %r", self._what, error)
        finally:
            self._num_connections -= 1
            writer.transport.abort()  # nothing happens where it is closed already

    async def _response(self, reader: asyncio.StreamReader) -> Response:
        head = (await within(TIMEOUT_S, reader.readuntil(b"\r\n\r\n"))).decode("latin-1")
        request, *lines = head.rstrip("\r\n").split("\r\n")
        pairs = [line.partition(":") for line in lines]
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if doubled := _find_doubled([name for name, _, _ in pairs]):
            return refusal("400 Bad Request", f"{doubled} comes more than once; expected it once at most")
        if "transfer-encoding" in headers:
            return refusal("411 Length Required", "a body needs its Content-Length")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            return refusal("400 Bad Request", f"Content-Length is {length!r:.100}; expected a number of bytes")
        if len(length) > MAX_DIGITS or int(length) > MAX_BODY_BYTES:
            return refusal("413 Content Too Large", f"a body has at most {MAX_BODY_BYTES} bytes")
        body = await within(TIMEOUT_S, reader.readexactly(int(length)))
        method, _, rest = request.partition(" ")
        path, _, query = rest.split(" ")[0].partition("?")
        try:
            return await self._answer(Request(method, path, dict(urllib.parse.parse_qsl(query)), headers, body))
        except Exception:  # our own fault must not leave somebody without an answer
            log.exception("%s: a request for %s failed", self._what, path)
            return refusal("500 Internal Server Error", "shmreplayd failed; its log says more. Please report it.")

    def close(self) -> None:
        """Answers nobody any more."""
        if self._server is not None:
            self._server.close()
        self._listener.close()
        if self._file is not None:
            self._file.close()


def _find_doubled(names: list[str]) -> str | None:
    """The header that decides something and comes twice, so that another reader might take the other one."""
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
