"""ArenaMark: makes what is done to several arenas one atomic step: the end of a restoration, or a drop.

The mark is a file beside the segments that names the arenas. A daemon that finds the mark of a killed daemon drops and
removes them all. A restoration sets it before it publishes the first arena. Removing it is the commit. A drop sets it
before it drops the first arena; that is the commit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from shmreplay.segments.abandoned import remove_abandoned_arena
from shmreplay.segments.segment import Doing, SegmentStore, check_name, mark_name

_END = "end\n"  # without it the mark is incomplete, and nothing was published or dropped yet
_MAX_BYTES = 2**20


class UnfitMark(Exception):
    """A file with the name of a mark that this daemon must not obey; the text says why."""


class ArenaMark:
    """A mark for arenas of this daemon, at least one."""

    def __init__(self, store: SegmentStore, instance: str, arenas: Sequence[str], doing: Doing) -> None:
        self._store = store
        self._arenas = list(arenas)
        self._name = mark_name(instance, arenas[0], doing)

    def set(self) -> None:
        """Writes the mark. Raises ShmReplayError, and leaves none, if that fails."""
        fd = self._store.create(self._name)
        try:
            text = "".join(f"{arena}\n" for arena in self._arenas) + _END
            with open(fd, "w", encoding="ascii") as file:
                file.write(text)
        except BaseException:
            self._store.unlink(self._name)
            raise

    def remove(self) -> None:
        self._store.unlink(self._name)


def obey_mark(store: SegmentStore, instance: str, name: str) -> list[str]:
    """Drops and removes the arenas that a mark names, and then the mark. Returns their names.

    If the process dies meanwhile, the next call does it again. Raises UnfitMark, and removes nothing, for a file that
    no daemon of this user wrote; ShmReplayError if a file cannot be removed.
    """
    arenas = read_mark(store, name)
    for arena in arenas:
        remove_abandoned_arena(store, instance, arena)
    store.unlink(name)
    return arenas


def read_mark(store: SegmentStore, name: str) -> list[str]:
    """The arenas that a mark names; none if it was not written to its end. Raises UnfitMark as `obey_mark`."""
    try:
        fd = store.open(name)
    except OSError as error:
        raise UnfitMark(f"it cannot be opened: {error}") from error
    with open(fd, encoding="ascii", errors="replace") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitMark("it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise UnfitMark(f"it belongs to uid {status.st_uid} with mode {stat.S_IMODE(status.st_mode):04o}")
        text = file.read(_MAX_BYTES)
    names = text.removesuffix(_END).splitlines()
    if not text.endswith(f"\n{_END}"):
        return []
    try:
        return [check_name("arena", arena) for arena in names]
    except ValueError as error:
        raise UnfitMark(f"it has a name that is not an arena's: {error}") from error
