"""A file that is there as a whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO

# What a file system without O_TMPFILE says of it.
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """A file to write to that takes the place of `path` at the end; whatever ends it early leaves nothing.

    It has no name while it is written, so that not even a kill leaves it; one that takes the place of another has a
    name beside it for a moment. Where the file system has only files with names, it has one all the time, and a kill
    leaves it. A symbolic link stays one, and what it leads to is replaced, with the permissions that it had.

    Raises OSError, also for what is there and no file, such as a device.
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
    """The name in a directory, of which only its descriptor is wanted, that a file has until it takes its place."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._name = f".shmreplay-{secrets.token_hex(8)}"  # however long that of its place is
        self._is_there = False

    def open(self) -> int:
        """A file without that name where there are such, else with it."""
        try:
            return os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600, dir_fd=self._directory)
        except OSError as error:
            if error.errno not in _NO_UNNAMED:
                raise
        self._is_there = True
        return os.open(self._name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, dir_fd=self._directory)

    def take_place(self, fd: int, name: str) -> None:
        """Gives the file another name, or that of another file."""
        if not self._is_there:
            try:
                self._link(fd, name)
                return
            except FileExistsError:  # no link replaces a file, as a rename does
                self._is_there = True
                self._link(fd, self._name)
        os.replace(self._name, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._is_there = False

    def _link(self, fd: int, name: str) -> None:
        # With a directory's descriptor, else os.link would link what it finds in /proc, and not what that leads to.
        os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def remove(self) -> None:
        if self._is_there:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._directory)


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Says the path as it was given, and none that we made."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}") from error


def _mode_of(target: str, path: str) -> int:
    """The permissions of a file there, else those of a new one."""
    with _told(path):
        try:
            mode = os.stat(target).st_mode
        except FileNotFoundError:
            return 0o666 & ~_umask()
    if not stat.S_ISREG(mode):
        raise OSError(f"{path} is no regular file; expected the name of one, or of one to be made")
    return stat.S_IMODE(mode)


def _umask() -> int:
    """It can only be read by setting it; other threads that make files meanwhile are none here."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
