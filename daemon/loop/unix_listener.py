"""UnixListener: a listening Unix socket and its file."""

from __future__ import annotations

import logging
import os
import socket
import stat

from shmreplay.errors import ShmReplayError

log = logging.getLogger("shmreplayd")

BACKLOG = 1024  # hundreds of actors start at the same moment


class UnixListener:
    """A listening socket at a path, open to this user alone or to a group.

    Args:
        passed: a socket that already listens at that path, such as systemd's. Its file, mode and group are left alone.

    Raises ShmReplayError if a daemon already listens there, or the path is not a socket.
    """

    def __init__(self, path: str, group_id: int | None, passed: socket.socket | None = None) -> None:
        self.path = path
        self._inode = 0  # of the socket file that we made and remove; 0: none
        if passed is not None:
            self.socket = passed
            return
        self._remove_stale()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.bind(path)
            self._inode = os.lstat(path).st_ino
            # Nobody can connect before listen(), so the umask's mode never lets anybody in.
            if group_id is not None:
                os.chown(path, -1, group_id)
            os.chmod(path, 0o600 if group_id is None else 0o660)
            self.socket.listen(BACKLOG)
        except OSError as error:
            self.close()
            raise ShmReplayError(f"cannot listen at {path}: {error}") from error

    def _remove_stale(self) -> None:
        try:
            mode = os.lstat(self.path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise ShmReplayError(f"cannot listen at {self.path}: another kind of file is there; remove it")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
                return
            except OSError as error:
                raise ShmReplayError(f"cannot listen at {self.path}: {error}") from error
        raise ShmReplayError(f"another daemon listens at {self.path}; stop it, or choose another --socket")

    def close(self) -> None:
        """Stops listening, and removes the file we made, unless another daemon has put its own there."""
        self.socket.close()
        if not self._inode:
            return
        try:
            if os.lstat(self.path).st_ino == self._inode:
                os.unlink(self.path)
        except FileNotFoundError:
            log.warning("another process removed the socket %s", self.path)
