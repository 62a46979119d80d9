"""The control protocol between shmreplayd and its clients.

A message is a 4-byte little-endian length and that many bytes of msgpack: one map with str keys. A request names its
`command`; every answer is one of

    {"ok": True, ...}                                 the command's own fields, file descriptors beside it (SCM_RIGHTS)
    {"error": class name, "message": text}            the command was refused or failed
    {"progress": text}                                the command still runs; another answer follows

A connection carries one request at a time, so answers need no number. `hello` comes first and has the version. Neither
side trusts the bytes of the other: length, nesting, and types of keys and values are limited, no extension type is
decoded, and pickle is not used. The data of tables is never sent here.
"""

from __future__ import annotations

import array
import os
import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgpack

from shmreplay import errors
from shmreplay.errors import ShmReplayError, remote_error
from shmreplay.version import VERSION

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 16 * 2**20
MAX_NESTING = 64  # enough for a signature of 30 nested dicts; deeper ones are attacks or mistakes
HEADER_BYTES = 4
MAX_VALUES = 2**20  # values in one message: 16 MiB of one-byte values would become a gigabyte of objects
_HOST_AND_PORT = re.compile(r"[\w.-]*:\d+|\[[0-9a-fA-F:]+\]:\d+")
_EMBEDDED_SOCKET = re.compile(r"/shmreplay-[0-9a-f]{12}/control\.sock$")
MAX_PATH_BYTES = 107  # sizeof(sockaddr_un.sun_path) - 1
MAX_TEXT = 4000  # characters of an error
MAX_FDS = 2  # an arena's index and data segment

_HEADER = struct.Struct("<I")
_RECEIVE_BYTES = 256 * 2**10
_FD_BYTES = array.array("i").itemsize
_PLAIN_ERRORS = (ValueError, TypeError, PermissionError, OSError)

_LIMITS: dict[str, Any] = {"max_array_len": MAX_VALUES, "max_map_len": MAX_VALUES}

Message = dict[str, Any]
Container = TypeVar("Container", list[Any], dict[Any, Any])


class ProtocolError(ShmReplayError):
    """The bytes received are not a message of this protocol. The connection cannot go on."""


def pack(message: Mapping[str, object]) -> bytes:
    """Returns the message with its header. Raises ValueError if it is longer than MAX_MESSAGE_BYTES."""
    body: bytes = msgpack.packb(message, use_bin_type=True)
    if len(body) > MAX_MESSAGE_BYTES:
        raise ValueError(f"the message has {len(body)} bytes; the control protocol carries at most {MAX_MESSAGE_BYTES}")
    return _HEADER.pack(len(body)) + body


def body_length(header: bytes, limit: int = MAX_MESSAGE_BYTES) -> int:
    """Returns the length that a header announces. Raises ProtocolError if it exceeds the limit."""
    length: int = _HEADER.unpack(header)[0]
    if length > limit:
        raise ProtocolError(
            f"a message of {length} bytes was announced, at most {limit} are taken here; "
            "is the other side another program, or another version of shmreplay?"
        )
    return length


def unpack(body: bytes) -> Message:
    """Decodes one message body. Raises ProtocolError on anything but a map of plain values with str keys."""
    count = _ValueCount()
    try:
        message = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            ext_hook=_refuse_extension,
            list_hook=count.add,
            object_hook=count.add,
            **_LIMITS,
        )
    except ProtocolError:
        raise
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise ProtocolError(f"{len(body)} bytes that are not a msgpack message: {reason}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"a message is a map, got {type(message).__name__}")
    _check_plain(message)
    return message


class _ValueCount:
    """Stops the decoding of a message with too many values before all its objects exist."""

    def __init__(self) -> None:
        self._num_values = 1

    def add(self, container: Container) -> Container:
        """Counts the values of a decoded list or map. Raises ProtocolError if there are too many."""
        self._num_values += len(container)
        if self._num_values > MAX_VALUES:
            raise ProtocolError(f"a message of more than {MAX_VALUES} values")
        return container


def _refuse_extension(code: int, data: bytes) -> NoReturn:
    raise ProtocolError(f"extension type {code} in a message; none is used by this protocol")


def _check_plain(message: Message) -> None:
    """Checks the whole message, with an explicit stack instead of recursion."""
    pending: list[tuple[object, int]] = [(message, 1)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, dict):
            bad = next((key for key in value if not isinstance(key, str)), None)
            if bad is not None:
                raise ProtocolError(f"a map key of type {type(bad).__name__}; keys are str")
            children: Sequence[object] = list(value.values())
        elif isinstance(value, list):
            children = value
        elif value is None or isinstance(value, (bool, int, float, str, bytes)):
            continue
        else:  # msgpack decodes extension -1 as a Timestamp without calling ext_hook
            raise ProtocolError(f"a value of type {type(value).__name__}; messages hold plain values only")
        if depth > MAX_NESTING:
            raise ProtocolError(f"a message nested deeper than {MAX_NESTING} levels")
        pending.extend((child, depth + 1) for child in children)


def error_answer(error: BaseException) -> Message:
    """Makes the answer for an error: the nearest class that both sides know, and the text."""
    text = str(error)
    if len(text) > MAX_TEXT:  # it may quote what the other side sent
        text = f"{text[:MAX_TEXT]}…"
    for cls in type(error).__mro__:
        name = cls.__name__
        if cls in _PLAIN_ERRORS or (issubclass(cls, ShmReplayError) and getattr(errors, name, None) is cls):
            return {"error": name, "message": text}
    return {"error": type(error).__name__, "message": text}


def raise_answered_error(answer: Message) -> None:
    """Raises the error if the answer is one."""
    if "error" in answer:
        raise remote_error(str(answer["error"]), str(answer.get("message", "")))


class Deadline:
    """A point in time on the monotonic clock. `None` seconds: never."""

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._at = None if timeout_s is None else time.monotonic() + timeout_s

    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; None if there is no limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.remaining_s() == 0.0


def send_message(sock: socket.socket, message: Mapping[str, object], deadline: Deadline) -> None:
    """Sends one message. Raises TimeoutError if the other side is too slow, OSError if it is gone."""
    data = memoryview(pack(message))
    while data:
        _arm(sock, deadline)
        data = data[sock.send(data) :]


def receive_message(sock: socket.socket, deadline: Deadline, max_fds: int = 0) -> tuple[Message, list[int]]:
    """Receives one message and up to `max_fds` descriptors sent with it, which the caller must close.

    Raises ConnectionError if the other side has closed, TimeoutError at the deadline, ProtocolError on garbage, or if
    this process has no descriptors left (`ulimit -n`).
    """
    fds: list[int] = []
    try:
        header = _receive_exactly(sock, HEADER_BYTES, deadline, fds if max_fds else None, max_fds)
        body = _receive_exactly(sock, body_length(header), deadline, None, 0)
        return unpack(body), fds
    except BaseException:
        close_all(fds)
        raise


def _receive_exactly(
    sock: socket.socket, num_bytes: int, deadline: Deadline, fds: list[int] | None, max_fds: int
) -> bytes:
    received = bytearray()
    while len(received) < num_bytes:
        _arm(sock, deadline)
        wanted = min(num_bytes - len(received), _RECEIVE_BYTES)
        if fds is None:
            piece = sock.recv(wanted)
        else:
            piece, ancillary, flags, _ = sock.recvmsg(
                wanted, socket.CMSG_SPACE(max_fds * _FD_BYTES), socket.MSG_CMSG_CLOEXEC
            )
            fds.extend(_descriptors(ancillary))
            if flags & socket.MSG_CTRUNC:
                raise ProtocolError(
                    f"{len(fds)} of {max_fds} file descriptors arrived: this process has no more "
                    "(ulimit -n); raise the limit or close files"
                )
        if not piece:
            raise ConnectionResetError("the other side closed the connection")
        received += piece
    return bytes(received)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % _FD_BYTES])
    return list(found)


def _arm(sock: socket.socket, deadline: Deadline) -> None:
    remaining_s = deadline.remaining_s()
    if remaining_s == 0.0:
        raise TimeoutError("timed out")
    sock.settimeout(remaining_s)


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def socket_path(address: str) -> str:
    """Returns the socket path of an address, which is a path, or `unix:` and a path.

    Raises:
        TypeError: the address is not a str.
        ValueError: it is no path of a socket, or one that is longer than Linux allows.
    """
    if not isinstance(address, (str, os.PathLike)):
        raise TypeError(f"address is a {type(address).__name__}; expected the path of a socket as str")
    path = os.fspath(address)
    path = path.removeprefix("unix:")
    if not path or "\0" in path or "://" in path:
        raise ValueError(f"address {address!r} is not a socket path, such as /run/shmreplay/default.sock")
    if _HOST_AND_PORT.fullmatch(path):
        raise ValueError(
            f"address {address!r} looks like host:port; shmreplay has no network protocol: give a socket path such as "
            "server.address"
        )
    path = os.path.abspath(path)
    num_bytes = len(os.fsencode(path))
    if num_bytes > MAX_PATH_BYTES:
        raise ValueError(f"socket path {path!r}: {num_bytes} bytes; Linux allows {MAX_PATH_BYTES}: use a shorter one")
    return path


def embedded_socket_path(root: str, token: str) -> str:
    """Returns the socket path of an embedded daemon, in a new directory. `token` is 12 new hexadecimal digits."""
    return os.path.join(root, f"shmreplay-{token}", "control.sock")


def is_embedded_socket(path: str) -> bool:
    """Whether this is the socket of an embedded daemon. Its directory exists as long as the daemon runs."""
    return _EMBEDDED_SOCKET.search(path) is not None


def default_socket_paths() -> list[str]:
    """Where clients look for a daemon by default, in this order. A daemon without --socket uses the first one."""
    named = os.environ.get("SHMREPLAY_SOCKET")
    if named:
        return [socket_path(named)]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = [os.path.join(runtime, "shmreplay", "default.sock")] if runtime else []
    home = "" if os.geteuid() == 0 else os.path.expanduser("~")
    if os.path.isabs(home):
        own.append(os.path.join(home, ".shmreplay", "default.sock"))
    return [*own, "/run/shmreplay/default.sock"]


def package_version() -> str:
    """The version of shmreplay on this side, such as `0.1.0`."""
    return VERSION
