"""RestorationMark: makes the publication of all arenas of a restoration one atomic step.

The mark is a file beside the segments that names the arenas. It exists from before the first arena is published until
after the last one is. Removing it is the commit. A daemon that finds the mark of a killed daemon removes its
arenas; no client has got one of them yet.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from shmreplay.segments.segment import SegmentStore, check_name, mark_name

_END = "end\n"  # without it the mark is incomplete, and nothing was published yet
_MAX_BYTES = 2**20


class UnfitMark(Exception):
    """A file with the name of a mark that this daemon must not obey; the text says why."""


class RestorationMark:
    """A mark for arenas that this daemon has made and not published."""

    def __init__(self, store: SegmentStore, instance: str, arenas: Sequence[str]) -> None:
        self._store = store
        self._arenas = list(arenas)
        self._name = mark_name(instance, arenas[0])

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
    """Removes the arenas that a mark names, and then the mark. Returns their names.

    If the process dies meanwhile, the next call does it again. Raises UnfitMark, and removes nothing, for a file that
    no daemon of this user wrote.
    """
    arenas = _read(store, name)
    for arena in arenas:
        store.remove_arena(instance, arena)
    store.unlink(name)
    return arenas


def _read(store: SegmentStore, name: str) -> list[str]:
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
