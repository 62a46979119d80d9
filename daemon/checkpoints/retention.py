"""Which checkpoints are removed once a new one is on the disk. Where there is a doubt, one too many is kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from shmreplay.checkpoints.checkpoint_directory import CheckpointDirectory
from shmreplay.checkpoints.checkpoint_file import verify
from shmreplay.errors import CheckpointFailed, DamagedCheckpoint

log = logging.getLogger("shmreplayd")

Identity = tuple[str, int, int, int]  # path, inode, bytes, time of the last change: the same file with the same bytes


@dataclass(frozen=True)
class Found:
    """A file with the name of a checkpoint. `tables` is None if it is damaged, or no checkpoint of this label."""

    path: str
    tables: frozenset[str] | None


def which_may_go(
    found: Sequence[Found], keep: int, strange: Collection[str] = (), dropped: Collection[str] = ()
) -> list[str]:
    """Paths of those that may be removed, of all that there are, newest first.

    Only whole ones beyond the newest `keep` whole ones with tables; of these none with a table that no newer one has
    which stays. If the newest has no table, none: such a daemon knows nothing of what the others are for.

    Args:
        strange: paths of those that this daemon's tables do not come from. They stay.
        dropped: tables that a client dropped since: nobody needs one that only has those.
    """
    whole = [(each.path, each.tables) for each in found if each.tables is not None]
    if not whole or not whole[0][1]:
        return []
    there = set(dropped)
    num_kept, may_go = 0, []
    for path, tables in whole:
        if tables and (num_kept < keep or not tables <= there or path in strange):
            num_kept += 1
            there |= tables
        else:
            may_go.append(path)
    return may_go


class Retention:
    """Removes what may go. Reads every checkpoint of its label once, to see if it is whole, but for its own.

    `keep` is how many whole ones stay; it may be changed at any time. `remove_old` belongs in a worker thread, the rest
    on the loop while none runs.
    """

    def __init__(self, directory: CheckpointDirectory, keep: int) -> None:
        self._directory = directory
        self.keep = keep
        self._known: dict[Identity, frozenset[str] | None] = {}
        self._told: set[str] = set()  # of which the log has said why they stay
        self._strange = set(directory.checkpoints())

    @property
    def strangers(self) -> list[str]:
        """Checkpoints that were there before this daemon, which its tables do not come from; newest first."""
        return sorted(self._strange, reverse=True)

    def comes_from(self, path: str, tables: Iterable[str]) -> None:
        """This whole checkpoint was restored: it and those before it are this daemon's to remove."""
        path = os.path.abspath(path)
        if path in self._directory.checkpoints():
            self._strange = {strange for strange in self._strange if strange > path}
            self._remember(path, tables)

    def comes_from_all(self) -> None:
        """Tables of the daemon before were taken over: what that one saved is this one's to remove."""
        self._strange.clear()

    def saved(self, path: str, tables: Iterable[str]) -> None:
        """This daemon wrote it just now, so it is whole."""
        self._remember(path, tables)

    def _remember(self, path: str, tables: Iterable[str]) -> None:
        self._known[_identity(path)] = frozenset(tables)

    def remove_old(self, dropped: Collection[str], is_stopping: Callable[[], bool]) -> list[str]:
        """Removes those that may go, and returns their paths.

        Raises CheckpointFailed once `is_stopping`, OSError if the directory cannot be read.
        """
        paths = self._directory.checkpoints()
        if len(paths) <= self.keep:
            return []
        looked = [(_identity(path), self._look(path, is_stopping)) for path in paths]
        self._known = dict(looked)  # those that are gone are forgotten
        found = [Found(path, tables) for (path, *_), tables in looked]
        may_go = which_may_go(found, self.keep, self._strange, dropped)
        self._tell_of_others([each for each in found if each.tables and each.path not in may_go][self.keep :])
        return self._directory.remove(may_go)

    def _look(self, path: str, is_stopping: Callable[[], bool]) -> frozenset[str] | None:
        identity = _identity(path)
        if identity not in self._known:
            self._known[identity] = self._read(path, is_stopping)
        return self._known[identity]

    def _read(self, path: str, is_stopping: Callable[[], bool]) -> frozenset[str] | None:
        def check(num_bytes: int) -> None:
            if is_stopping():
                raise _Stopped

        try:
            found = verify(path, check)
            if found["label"] != self._directory.label:
                log.warning("%s is kept, and not counted: it is one of %r", path, found["label"])
                return None
            return frozenset(table["name"] for state in found["states"] for table in state["tables"])
        except _Stopped:
            raise CheckpointFailed("the daemon is stopping") from None
        except (DamagedCheckpoint, OSError, LookupError, TypeError) as error:
            log.warning("%s is kept, and not counted: %s", path, error)
            return None

    def _tell_of_others(self, others: Sequence[Found]) -> None:
        for each in others:
            if each.path not in self._told:
                self._told.add(each.path)
                reason = "it was there before" if each.path in self._strange else "no newer one has all its tables"
                log.info("checkpoint %s is kept beside the newest %d: %s", each.path, self.keep, reason)


def _identity(path: str) -> Identity:
    status = os.stat(path)
    return path, status.st_ino, status.st_size, status.st_mtime_ns


class _Stopped(Exception):
    """Ends the reading of a checkpoint."""
