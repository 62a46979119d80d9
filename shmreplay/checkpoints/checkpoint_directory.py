"""CheckpointDirectory: names, creates and removes checkpoints. A new one appears whole or not at all.

A checkpoint is called `shmreplay.<label>.<moment>.checkpoint`. While it is written, its name ends in `.partial` and the
file is locked with flock, which distinguishes it from the leftover of a killed saver. Files with such a name that are
not regular files, or whose moment is impossible, are ignored.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence

from shmreplay.base.process_limits import reason_with_limit
from shmreplay.checkpoints.checkpoint_file import MAGIC
from shmreplay.errors import CheckpointFailed

log = logging.getLogger("shmreplay")

PARTIAL = ".partial"
EMBEDDED_LABEL = "embedded"  # shared by all sr.Servers, since each has a new instance
_NAME = re.compile(r"shmreplay\.(?P<label>[A-Za-z0-9_-]{1,64})\.(?P<moment>[0-9]{8}T[0-9]{12}Z)\.checkpoint")


class CheckpointDirectory:
    """The checkpoints of one label in a directory. The label is the name of the daemon's instance."""

    def __init__(self, path: str, label: str) -> None:
        self.path = os.path.abspath(path)
        self.label = label

    def checkpoints(self) -> list[str]:
        """Paths of its checkpoints, newest first."""
        return find_checkpoints(self.path, self.label)

    @contextlib.contextmanager
    def create(self) -> Iterator[tuple[int, str]]:
        """Yields a descriptor for a new checkpoint, and the path that it gets if the block ends without an error.

        After an error nothing is left. Raises CheckpointFailed if the directory cannot be written to.
        """
        path = self._new_path()
        temporary = path + PARTIAL
        directory, fd = self._open(temporary)
        try:
            yield fd, path
            os.fsync(fd)
            os.rename(temporary, path)
        except BaseException as error:
            with contextlib.suppress(FileNotFoundError):
                # By the descriptor: the directory may have been renamed.
                os.unlink(os.path.basename(temporary), dir_fd=directory)
            if isinstance(error, OSError) and error.errno and not error.filename:  # from a write, as on a full disk
                text = f"no checkpoint can be written to {self.path}: {reason_with_limit(error)}"
                raise OSError(error.errno, text) from error
            raise
        finally:
            os.close(fd)
            os.close(directory)
        self._sync()

    def _new_path(self) -> str:
        """A name that sorts after all others, even if the clock was set back."""
        moment = f"{datetime.datetime.now(datetime.timezone.utc):%Y%m%dT%H%M%S%f}Z"
        newest = self.checkpoints()
        if newest and self._path(moment) <= newest[0]:
            try:
                last = moment_of(newest[0]) + datetime.timedelta(microseconds=1)
            except OverflowError:
                raise CheckpointFailed(f"no moment is later than that of {newest[0]}; move it elsewhere") from None
            moment = f"{last:%Y%m%dT%H%M%S%f}Z"
        return self._path(moment)

    def _path(self, moment: str) -> str:
        return os.path.join(self.path, f"shmreplay.{self.label}.{moment}.checkpoint")

    def _open(self, path: str) -> tuple[int, int]:
        """Opens the directory, and makes and locks a new file in it. Returns both descriptors."""
        try:
            os.makedirs(self.path, 0o700, exist_ok=True)
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise CheckpointFailed(f"no checkpoint can be written to {self.path}: {error}") from error
        try:
            return directory, self._open_in(directory, os.path.basename(path))
        except OSError as error:
            os.close(directory)
            raise CheckpointFailed(f"no checkpoint can be written to {self.path}: {error}") from error

    @staticmethod
    def _open_in(directory: int, name: str) -> int:
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(name, flags, 0o600, dir_fd=directory)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.fstat(fd).st_nlink > 0:
                    return fd
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)
                os.close(fd)
                raise
            os.close(fd)  # another saver removed it as a leftover between our open and our flock

    def _sync(self) -> None:
        """Makes changes of names durable."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # this file system cannot sync directories
                raise
        finally:
            os.close(fd)

    def remove_partial_files(self) -> None:
        """Removes the partial files that killed savers left."""
        for name in _names(self.path):
            if name.endswith(PARTIAL) and _is_of(name.removesuffix(PARTIAL), self.label):
                path = os.path.join(self.path, name)
                try:
                    self._remove_unlocked(path)
                except FileNotFoundError:
                    log.debug("another saver has removed %s", path)
                except OSError as error:
                    log.warning("%s is kept, because it cannot be read or removed: %s", path, error)

    @staticmethod
    def _remove_unlocked(path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # not to block on a pipe
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not stat.S_ISREG(os.fstat(fd).st_mode) or not MAGIC.startswith(os.pread(fd, len(MAGIC), 0)):
                log.warning("%s is kept, because it does not begin like a checkpoint", path)
                return
            os.unlink(path)
            log.info("removed %s, the partial file of a saver that was killed", path)
        except BlockingIOError:
            log.debug("left alone: %s, which is being written", path)
        finally:
            os.close(fd)

    def remove(self, paths: Sequence[str]) -> list[str]:
        """Removes checkpoints, and returns the paths of those removed.

        Logs those that cannot be removed.
        """
        removed = []
        for path in paths:
            try:
                os.unlink(path)
                removed.append(path)
            except OSError as error:
                log.warning("%s is kept, because it cannot be removed: %s", path, error)
        if removed:
            self._sync()
        return removed


def find_checkpoints(directory: str, label: str | None = None) -> list[str]:
    """Paths of the checkpoints of one label, or of all, newest first. Raises OSError."""
    found = [name for name in _names(directory) if _is_of(name, label)]
    found.sort(key=lambda name: (_matched(name)["moment"], name), reverse=True)
    return [path for path in (os.path.join(directory, name) for name in found) if os.path.isfile(path)]


def labels_in(directory: str) -> set[str]:
    """Labels of the checkpoints in a directory. Raises OSError."""
    return {_matched(os.path.basename(path))["label"] for path in find_checkpoints(directory)}


def moment_of(path: str) -> datetime.datetime:
    """The moment, in UTC, from the name of a checkpoint."""
    return _moment(_matched(os.path.basename(path))["moment"])


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y%m%dT%H%M%S%fZ")


def _matched(name: str) -> re.Match[str]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not the name of a checkpoint")
    return match


def _is_of(name: str, label: str | None) -> bool:
    match = _NAME.fullmatch(name)
    if match is None or label not in (None, match["label"]):
        return False
    try:
        _moment(match["moment"])
    except ValueError:
        return False
    return True


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
