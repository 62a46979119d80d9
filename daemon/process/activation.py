"""Socket activation: systemd listens, and passes the listening socket to the daemon at its start.

So clients can connect before the daemon runs, and wait in the socket's queue while it restarts.
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
    """Returns the listening socket that systemd passed to this process, or None.

    Removes systemd's variables from the environment, and makes the descriptor close-on-exec. Raises ShmReplayError
    unless systemd passed exactly one socket, a Unix socket that listens at a path.
    """
    said = {name: environment.pop(name, "") for name in _VARIABLES}
    if said["LISTEN_PID"] != str(os.getpid()) or said["LISTEN_FDS"] in ("", "0"):
        return None
    if said["LISTEN_FDS"] != "1":
        names = f" ({said['LISTEN_FDNAMES']})" if said["LISTEN_FDNAMES"] else ""
        raise ShmReplayError(
            f"systemd passed {said['LISTEN_FDS']} sockets{names}; expected one, from a socket unit with one "
            "ListenStream= that is a path"
        )
    os.set_inheritable(first_fd, False)
    reason = _why_unfit(first_fd)
    if reason is not None:
        raise ShmReplayError(f"the socket from systemd {reason}; expected a socket unit with a path in ListenStream=")
    return socket.socket(fileno=first_fd)


def _why_unfit(fd: int) -> str | None:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return "is not a socket"
    passed = socket.socket(fileno=os.dup(fd))
    with passed:
        if passed.family != socket.AF_UNIX or passed.type != socket.SOCK_STREAM:
            return "is not a Unix stream socket (AF_UNIX, SOCK_STREAM)"
        if not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return "does not listen"
        name = passed.getsockname()
        if not isinstance(name, str) or not name.startswith("/"):
            return f"is bound to {name!r}, which is not a path"
    return None
