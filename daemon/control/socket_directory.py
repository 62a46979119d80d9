"""Makes the directory of the control socket, and lets the group into it."""

from __future__ import annotations

import os

from shmreplay.daemon.config.configuration import DaemonConfig
from shmreplay.errors import ShmReplayError
from shmreplay.protocol import default_socket_paths


def make_socket_directory(config: DaemonConfig) -> bool:
    """Makes the directory if it is missing; returns whether it did. An embedded daemon's must not exist yet."""
    directory = os.path.dirname(config.socket)
    if not config.embedded and os.path.isdir(directory):
        return False
    try:
        os.mkdir(directory, 0o700)
    except FileNotFoundError as error:
        parent = os.path.dirname(directory)
        raise ShmReplayError(
            f"cannot make the socket's directory {directory}: {parent} does not exist; make it, or choose "
            "another --socket"
        ) from error
    except OSError as error:
        hint = f", such as {_own_socket()}" if isinstance(error, PermissionError) else ""
        raise ShmReplayError(
            f"cannot make the socket's directory {directory}: {error.strerror}; choose another --socket{hint}"
        ) from error
    if config.group_id is not None:
        _share(directory, config.group_id, config.group_name)
    return True


def _share(directory: str, group_id: int, group_name: str | None) -> None:
    """Lets a group into a directory that was just made. Removes the directory if that fails."""
    try:
        os.chown(directory, -1, group_id)
        os.chmod(directory, 0o750)
    except OSError as error:
        os.rmdir(directory)
        raise ShmReplayError(
            f"cannot give the socket's directory {directory} to group {group_name}: {error.strerror}; run the daemon "
            "as a member of it"
        ) from error


def _own_socket() -> str:
    """A socket path that this user can use, and how clients find it."""
    for path in default_socket_paths()[:-1]:  # the last one is the service's
        if _can_make_in(os.path.dirname(os.path.dirname(path))):  # after `su` a directory may be another user's
            return f"{path}, where clients look by default"
    home = os.path.expanduser("~")
    own = f"{home}/.shmreplay" if _can_make_in(home) else f"/tmp/shmreplay-{os.geteuid()}"
    return f"{own}/default.sock, and give clients that path in SHMREPLAY_SOCKET"


def _can_make_in(directory: str) -> bool:
    """Whether this user can make a directory there."""
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)
