"""whole_file: writes a file that appears complete, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO

from shmreplay.base.process_limits import reason_with_limit

# The errors of a file system without O_TMPFILE.
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """A file to write to, which becomes `path` at the end. If an error ends the context, nothing is left of it.

    The file has no name while it is written, so not even a kill leaves it behind. To replace an existing file, it has
    a temporary name for a moment. On a file system without nameless files it has that name all the time, and a kill
    leaves it behind. If `path` is a symbolic link, its target is replaced. An existing file's permissions are kept.

    Raises OSError, also if `path` exists and is not a regular file, such as a device.
    """
    target = os.path.realpath(path)
    mode = _mode_of(target, path)
    directory, name = os.path.split(target)
    with contextlib.ExitStack() as opened:
        with _told(path):
            at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, at)
            beside = _Beside(at)
            opened.callback(beside.remove)
            file = opened.enter_context(os.fdopen(beside.open(), "wb"))
        yield file
        with _told(path):
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            beside.take_place(file.fileno(), name)


class _Beside:
    """The temporary name that a file may need in a directory until it gets its final name."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._name = f".shmreplay-{secrets.token_hex(8)}"  # short, however long the final name is
        self._is_there = False

    def open(self) -> int:
        """Opens a file without a name; with the temporary name if the file system has no nameless files."""
        try:
            return os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600, dir_fd=self._directory)
        except OSError as error:
            if error.errno not in _NO_UNNAMED:
                raise
        self._is_there = True
        return os.open(self._name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, dir_fd=self._directory)

    def take_place(self, fd: int, name: str) -> None:
        """Gives the file its final name, perhaps that of an existing file."""
        if not self._is_there:
            try:
                self._link(fd, name)
                return
            except FileExistsError:  # unlike a rename, a link does not replace a file
                self._is_there = True
                self._link(fd, self._name)
        os.replace(self._name, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._is_there = False

    def _link(self, fd: int, name: str) -> None:
        # With directory descriptors, os.link follows the link in /proc; without them it would link that link itself.
        os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def remove(self) -> None:
        if self._is_there:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._directory)


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Has errors name the path that the user gave, instead of a temporary name."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written: {reason_with_limit(error)}") from error


def _mode_of(target: str, path: str) -> int:
    """The permissions of the existing file, or those of a new one."""
    with _told(path):
        try:
            mode = os.stat(target).st_mode
        except FileNotFoundError:
            return 0o666 & ~_umask()
    if not stat.S_ISREG(mode):
        raise OSError(f"{path} is no regular file; expected the name of one, or of one to be made")
    return stat.S_IMODE(mode)


def _umask() -> int:
    """The umask. It can only be read by setting it; no other thread creates files meanwhile."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
