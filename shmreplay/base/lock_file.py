"""LockFile: a file that its owner holds with flock, and removes on release.

The kernel drops the lock however the owner ends. The descriptor is close-on-exec and is never sent to another process:
a duplicate there would keep the lock after the owner's death.
"""

from __future__ import annotations

import fcntl
import os
import stat


class Held(Exception):
    """Another process holds the lock; the text is the first line that it wrote into the file."""


def read_lock_file(path: str) -> tuple[os.stat_result, list[str]]:
    """Returns the status of a lock file, and the lines that its holder wrote. Takes no lock. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # not to block on a pipe
    try:
        status = os.fstat(fd)
        text = os.fsdecode(os.pread(fd, 4096, 0)) if stat.S_ISREG(status.st_mode) else ""
        return status, text.split("\n")
    finally:
        os.close(fd)


class LockFile:
    """Takes the lock. Raises Held if another process has it, OSError if the file cannot be opened.

    Args:
        waits: wait for the other process, without a time limit, instead of raising. Use it in a worker thread only.
    """

    def __init__(self, path: str, *, waits: bool = False) -> None:
        self.path = path
        self._fd = self._acquire(fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _acquire(self, operation: int) -> int:
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, operation)
                if self._is_current(fd):
                    return fd
            except BlockingIOError:
                try:
                    holder = os.pread(fd, 4096, 0).decode("utf-8", "replace").partition("\n")[0] or "unknown"
                finally:
                    os.close(fd)
                raise Held(holder) from None
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the previous holder removed the file between our open and our flock

    def _open(self) -> int:
        # In two steps: with O_CREAT, the kernel refuses even root another user's file in a sticky directory.
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            try:
                return os.open(self.path, flags)
            except FileNotFoundError:
                pass
            try:
                return os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue

    def _is_current(self, fd: int) -> bool:
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        mine = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def write(self, text: str) -> None:
        """Replaces the content of the file, which says who holds it. Raises OSError; the lock is released then."""
        try:
            os.fchmod(self._fd, 0o600)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, os.fsencode(text), 0)
        except OSError:
            self.release()
            raise

    def leave(self) -> None:
        """Unlocks the file without removing it."""
        os.close(self._fd)

    def release(self) -> None:
        """Removes the file, then unlocks it. A process that waits for this inode sees that it has gone, and retries.

        Raises OSError if the file cannot be removed; the lock is released even then.
        """
        try:
            if self._is_current(self._fd):
                os.unlink(self.path)
        finally:
            os.close(self._fd)
