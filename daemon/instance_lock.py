"""One daemon an instance: a lock file beside the segments, held with flock for as long as the daemon lives.

The kernel drops the lock however the daemon ends. The descriptor is close-on-exec and is never sent to anybody: a
duplicate that lived on elsewhere would keep a dead daemon's lock.
"""

from __future__ import annotations

import fcntl
import os

from shmreplay.errors import ShmReplayError
from shmreplay.segments import SegmentStore, lock_name


class InstanceLock:
    """Takes the lock of an instance. Raises ShmReplayError that names the holder if another daemon has it.

    The file says who holds it, in its first line, and where its socket is, in its second.
    """

    def __init__(self, store: SegmentStore, instance: str, socket: str = "") -> None:
        self.instance = instance
        self.path = store.path(lock_name(instance))
        self._fd = self._acquire()
        os.fchmod(self._fd, 0o600)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, os.fsencode(f"{os.getpid()}\n{socket}\n"), 0)

    def _acquire(self) -> int:
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(fd, 4096, 0).decode("utf-8", "replace").partition("\n")[0] or "unknown"
                os.close(fd)
                raise ShmReplayError(
                    f"instance {self.instance!r} has a daemon already, pid {holder} (it holds {self.path}); "
                    "stop it, or choose another --instance"
                ) from None
            if self._is_current(fd):
                return fd
            os.close(fd)  # the former holder removed the file between our open and our lock

    def _open(self) -> int:
        # In two steps: with O_CREAT the kernel refuses files of other users in sticky directories even to root.
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            try:
                return os.open(self.path, flags)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise self._not_ours(error) from error
            try:
                return os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue
            except OSError as error:
                raise self._not_ours(error) from error

    def _not_ours(self, error: OSError) -> ShmReplayError:
        return ShmReplayError(
            f"the lock of instance {self.instance!r} cannot be opened: {error}; "
            "if another user runs that instance, choose another --instance"
        )

    def _is_current(self, fd: int) -> bool:
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        mine = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def release(self) -> None:
        """Removes the file, then lets go: whoever waits for this inode notices that it is no longer the current one."""
        if self._is_current(self._fd):
            os.unlink(self.path)
        os.close(self._fd)
