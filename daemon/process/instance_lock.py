"""InstanceLock: a lock file beside the segments, so that an instance has only one daemon."""

from __future__ import annotations

import os

from shmreplay.base.lock_file import Held, LockFile
from shmreplay.base.user_names import user_name
from shmreplay.daemon.process.parent import Parent
from shmreplay.errors import ShmReplayError
from shmreplay.segments.segment import SegmentStore, default_instance, lock_name


class InstanceLock:
    """Takes the lock of an instance. Raises ShmReplayError, which names the holder, if another daemon has it.

    The first line of the file is the pid of the holder, the second the path of its socket, the third the parent of an
    embedded daemon.
    """

    def __init__(self, store: SegmentStore, instance: str, socket: str = "", parent: Parent | None = None) -> None:
        self.instance = instance
        self.path = store.path(lock_name(instance))
        try:
            self._file = LockFile(self.path)
        except Held as holder:
            raise ShmReplayError(
                f"instance {instance!r} already has a daemon, pid {holder} (it holds {self.path}); "
                "stop it, or choose another --instance"
            ) from None
        except OSError as error:
            raise ShmReplayError(
                f"the lock of instance {instance!r} cannot be opened: {error}; {self._advice()}"
            ) from error
        self._file.write(f"{os.getpid()}\n{socket}\n" + ("" if parent is None else f"{parent.line()}\n"))

    def _advice(self) -> str:
        """What to do about a lock file that cannot be opened."""
        try:
            owner = os.lstat(self.path).st_uid
        except OSError:
            owner = os.geteuid()
        if owner == os.geteuid():
            return "make it accessible, or choose another --instance"
        own = default_instance()
        such_as = "" if own == self.instance else f", such as {own}"
        return (
            f"it belongs to user {user_name(owner)}, whose daemon runs or left the file; choose another "
            f"--instance{such_as}"
        )

    def release(self) -> None:
        """Removes the file and releases the lock."""
        self._file.release()
