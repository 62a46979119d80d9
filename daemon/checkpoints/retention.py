"""Retention: which old checkpoints are removed after a new one was saved. In doubt it keeps one too many."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from shmreplay.checkpoints.checkpoint_directory import CheckpointDirectory
from shmreplay.checkpoints.checkpoint_file import verify
from shmreplay.errors import CheckpointFailed, DamagedCheckpoint

log = logging.getLogger("shmreplayd")

Identity = tuple[str, int, int, int]  # path, inode, size, time of the last change: if equal, the content is the same


@dataclass(frozen=True)
class FoundCheckpoint:
    """A file with the name of a checkpoint. `tables` is None if it is damaged or of another label."""

    path: str
    tables: frozenset[str] | None


def which_may_go(
    found: Sequence[FoundCheckpoint], keep: int, strange: Collection[str] = (), dropped: Collection[str] = ()
) -> list[str]:
    """Paths of the checkpoints that may be removed.

    The newest `keep` undamaged checkpoints with tables stay. An older one stays, too, if it has a table that no newer
    one that stays has. Damaged ones stay. If the newest has no tables, all stay: a daemon without tables cannot know
    what the others are for.

    Args:
        found: all checkpoints, newest first.
        keep: how many stay at least.
        strange: paths of checkpoints that this daemon's tables do not come from. They stay.
        dropped: tables that clients have dropped; a checkpoint is not kept for them.
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
    """Removes old checkpoints. Reads each checkpoint of its label once to verify it, except those this daemon wrote.

    `keep` may be changed at any time. `newest`, `saved` and `remove_old` belong in the worker thread that saves;
    call the rest on the event loop while none of them runs.
    """

    def __init__(self, directory: CheckpointDirectory, keep: int) -> None:
        self._directory = directory
        self.keep = keep
        self._known: dict[Identity, frozenset[str] | None] = {}
        self._told: set[str] = set()  # paths for which the log has said why they are kept
        self._contents: dict[Identity, bytes | None] = {}  # of those written or read here; None: damaged, or another's
        self._strange = set(directory.checkpoints())

    @property
    def strangers(self) -> list[str]:
        """Checkpoints from before this daemon that its tables do not come from; newest first."""
        return sorted(self._strange, reverse=True)

    def comes_from(self, path: str, tables: Iterable[str]) -> None:
        """This checkpoint was restored: it and the older ones may now be removed."""
        path = os.path.abspath(path)
        if path in self._directory.checkpoints():
            self._strange = {strange for strange in self._strange if strange > path}
            self._remember(path, tables)

    def comes_from_all(self) -> None:
        """Tables were taken over from the previous daemon: its checkpoints may now be removed."""
        self._strange.clear()

    def saved(self, path: str, tables: Iterable[str], content: bytes) -> None:
        """This daemon has just written the checkpoint, so it need not be verified."""
        self._remember(path, tables)
        self._contents = {_identity(path): content}  # only the newest is ever asked for

    def newest(self, is_stopping: Callable[[], bool]) -> tuple[str, bytes] | None:
        """The newest checkpoint and its content; None if it is damaged, or is none that the tables come from.

        Reads it, once, if this daemon did not write it. Raises as `remove_old`.
        """
        paths = self._directory.checkpoints()
        if not paths or paths[0] in self._strange:
            return None
        identity = _identity(paths[0])
        if identity not in self._contents:
            self._known[identity] = self._read(paths[0], is_stopping)
            self._contents.setdefault(identity, None)
        content = self._contents[identity]
        return None if content is None else (paths[0], content)

    def _remember(self, path: str, tables: Iterable[str]) -> None:
        self._known[_identity(path)] = frozenset(tables)

    def remove_old(self, dropped: Collection[str], is_stopping: Callable[[], bool]) -> list[str]:
        """Removes what may be removed, and returns the paths.

        Raises CheckpointFailed if `is_stopping` returns True meanwhile, OSError if the directory cannot be read.
        """
        paths = self._directory.checkpoints()
        if len(paths) <= self.keep:
            return []
        looked = [(_identity(path), self._look(path, is_stopping)) for path in paths]
        self._known = dict(looked)  # forgets files that are gone
        found = [FoundCheckpoint(path, tables) for (path, *_), tables in looked]
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
                log.warning("%s is kept, and not counted: its label is %r", path, found["label"])
                return None
            self._contents[_identity(path)] = found["content"]
            return frozenset(table["name"] for state in found["states"] for table in state["tables"])
        except _Stopped:
            raise CheckpointFailed("the daemon is stopping") from None
        except (DamagedCheckpoint, OSError, LookupError, TypeError) as error:
            log.warning("%s is kept, and not counted: %s", path, error)
            return None

    def _tell_of_others(self, others: Sequence[FoundCheckpoint]) -> None:
        for each in others:
            if each.path not in self._told:
                self._told.add(each.path)
                reason = (
                    "it is older than the daemon" if each.path in self._strange else "no newer one has all its tables"
                )
                log.info("checkpoint %s is kept in addition to the newest %d: %s", each.path, self.keep, reason)


def _identity(path: str) -> Identity:
    status = os.stat(path)
    return path, status.st_ino, status.st_size, status.st_mtime_ns


class _Stopped(Exception):
    """Stops the verification of a checkpoint."""
