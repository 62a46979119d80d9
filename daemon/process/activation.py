"""Socket activation: systemd listens, and passes the listening socket on when the daemon starts.

So clients can connect before the daemon is there, and wait for it in the socket's queue while it is restarted.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import MutableMapping

from shmreplay.errors import ShmReplayError

FIRST_FD = 3  # SD_LISTEN_FDS_START
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def take_listener(environment: MutableMapping[str, str], first_fd: int = FIRST_FD) -> socket.socket | None:
    """The listening socket that was passed to this process; None if none was.

    Takes the variables that say so out of the environment, and keeps the descriptor from child processes. Raises
    ShmReplayError unless it is exactly one, of a Unix socket that listens at a path.
    """
    said = {name: environment.pop(name, "") for name in _VARIABLES}
    if said["LISTEN_PID"] != str(os.getpid()) or said["LISTEN_FDS"] in ("", "0"):
        return None
    if said["LISTEN_FDS"] != "1":
        names = f" ({said['LISTEN_FDNAMES']})" if said["LISTEN_FDNAMES"] else ""
        raise ShmReplayError(
            f"{said['LISTEN_FDS']} sockets were passed{names}; expected one, of a socket unit with one ListenStream= "
            "that is a path"
        )
    os.set_inheritable(first_fd, False)
    reason = _why_unfit(first_fd)
    if reason is not None:
        raise ShmReplayError(f"the socket that was passed {reason}; expected ListenStream= with a path in its unit")
    return socket.socket(fileno=first_fd)


def _why_unfit(fd: int) -> str | None:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return "is no socket"
    passed = socket.socket(fileno=os.dup(fd))
    with passed:
        if passed.family != socket.AF_UNIX or passed.type != socket.SOCK_STREAM:
            return "is no stream socket of this machine (AF_UNIX, SOCK_STREAM)"
        if not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return "does not listen"
        name = passed.getsockname()
        if not isinstance(name, str) or not name.startswith("/"):
            return f"is bound to {name!r}, which is no path"
    return None
