"""The user that a daemon runs as, by the kernel, and whether root may trust the place where it listens."""

from __future__ import annotations

import os
import socket
import struct

from shmreplay.base.user_names import user_name
from shmreplay.protocol import Message

_CREDENTIALS = struct.Struct("3i")


def daemon_user(sock: socket.socket, hello: Message) -> int:
    """The uid that the daemon runs as.

    If root listens for it (a socket unit of systemd), the kernel says root; then the daemon's own word counts.
    """
    listener = _listener(sock)
    return int(hello.get("uid", 0)) if listener == 0 else listener


def owners_of_segments(sock: socket.socket, hello: Message) -> set[int]:
    """The users that may own the daemon's segments: the one that it runs as, and root if root listens for it."""
    return {_listener(sock), daemon_user(sock, hello)}


def _listener(sock: socket.socket) -> int:
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(packed)[1])


def check_place(path: str, user: int) -> None:
    """For root: raises PermissionError if others than root and `user` may put a socket at the path.

    They could make root use a daemon of theirs. Everybody else attaches with no more rights than that daemon's user
    has been given.
    """
    if os.geteuid() != 0 or user == 0:
        return
    directory = os.path.dirname(os.path.abspath(path))
    for folder in dict.fromkeys([*_ancestors(directory), *_ancestors(os.path.realpath(directory))]):
        status = os.stat(folder)
        if status.st_uid == user or (status.st_uid == 0 and not status.st_mode & 0o022):
            continue
        raise PermissionError(
            f"root does not use the shmreplayd of user {user_name(user)} at {path}: others may write to {folder} (mode "
            f"{status.st_mode & 0o7777:04o}, owner {user_name(status.st_uid)}) and put a daemon of theirs there; run "
            f"this as {user_name(user)}, or move the socket, such as to /run/shmreplay"
        )


def _ancestors(directory: str) -> list[str]:
    """The directory and all above it."""
    found = [directory]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found
