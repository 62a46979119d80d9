"""Adoption: takes over the arenas that an earlier daemon of this instance left."""

from __future__ import annotations

import logging
import os
import stat
from typing import Any

from shmreplay import _core
from shmreplay.base.process_limits import SHORTAGES, with_limit
from shmreplay.base.processes import boot_id, own_namespace
from shmreplay.columns.specs import MissingPackage
from shmreplay.daemon.arenas.arena import STOP_TIMEOUT_S, ManagedArena
from shmreplay.errors import ShmReplayError
from shmreplay.segments.arena_mark import UnfitMark, obey_mark, read_mark
from shmreplay.segments.segment import SegmentStore, segment_names, set_access
from shmreplay.segments.segment_fit import Fact, first_misfit, layout_facts
from shmreplay.segments.segment_users import is_in_use
from shmreplay.tables.packed_specs import unpack_specs

log = logging.getLogger("shmreplayd")


class Unfit(Exception):
    """The segments of an arena cannot be taken over; the text says why."""


class Adoption:
    """Looks at all segments of one instance. The caller holds the instance's lock, so no other daemon uses them.

    Raises OSError if this process cannot tell this boot and its own pid namespace from others: then no arena is looked
    at, because all would look foreign.
    """

    def __init__(self, store: SegmentStore, instance: str, group_id: int | None, *, discard: bool) -> None:
        self._store = store
        self._instance = instance
        self._group_id = group_id
        self._discard = discard
        self._boot_id, self._pid_namespace = boot_id(), own_namespace("pid")

    def adopt_all(self) -> list[ManagedArena]:
        """Takes over every arena that fits. Logs the others and leaves them alone, or removes them with `discard`."""
        kept_aside = self._obey_all()
        adopted = []
        for arena, kinds in sorted(self._store.arenas(self._instance).items()):
            try:
                if arena in kept_aside:
                    raise Unfit(kept_aside[arena])
                adopted.append(self._adopt(arena, kinds))
            except Unfit as error:
                self._put_aside(arena, str(error))
            except MissingPackage as error:  # nothing is wrong with it, so --discard does not mean it
                log.error("arena %r is not taken over, and stays as it is: %s, then start again", arena, error)
            except (OSError, MemoryError) as error:  # of this process, or of the machine: it says nothing of the arena
                _keep(arena, error)
            except _Leftovers as error:
                self._remove_leftovers(arena, error)
            except Exception as error:  # a fault of ours in one arena must not keep the others from being taken over
                log.exception("arena %r", arena)
                self._put_aside(arena, f"looking at it failed ({error!r})")
        return adopted

    def _remove_leftovers(self, arena: str, leftovers: _Leftovers) -> None:
        name = segment_names(self._instance, arena).index
        try:
            is_used = leftovers.have_no_users and is_in_use(self._store, name)
        except ShmReplayError as error:
            _keep(arena, error)
            return
        try:
            if is_used:
                self._put_aside(arena, f"the header of {name} says that it is not in use yet, but a process uses it")
                return
            log.info("arena %r: removing the leftovers of a creation or removal that was killed", arena)
            self._store.remove_arena(self._instance, arena)
        except ShmReplayError as error:
            self._put_aside(arena, f"it is what a killed daemon left, but {error}")

    def _obey_all(self) -> dict[str, str]:
        """Removes the arenas of a restoration that was killed, or of a drop of several arenas.

        Returns those that could not be removed, each with the reason.
        """
        kept: dict[str, str] = {}
        for mark in self._store.marks(self._instance):
            try:
                arenas = obey_mark(self._store, self._instance, mark)
            except UnfitMark as error:
                if self._discard:
                    log.warning("%s is removed (--discard): %s", mark, error)
                    self._store.unlink(mark)
                else:
                    log.error(
                        "%s is not a mark that this daemon wrote: %s; start with --discard to remove it", mark, error
                    )
            except ShmReplayError as error:
                reason = f"{mark} says that it was to be removed, but {error}"
                kept.update(dict.fromkeys(read_mark(self._store, mark), reason))
            else:
                found = ", ".join(map(repr, arenas)) or "no arena"
                log.info("removed the leftovers of a restoration or a drop that was killed: %s", found)
        return kept

    def _put_aside(self, arena: str, reason: str) -> None:
        if not self._discard:
            log.error("arena %r is not taken over: %s; start with --discard to remove it", arena, reason)
            return
        log.warning("arena %r is removed (--discard): %s", arena, reason)
        try:
            self._store.remove_arena(self._instance, arena)
        except ShmReplayError as error:  # the other arenas are still adopted
            log.error("arena %r is left alone: %s; remove it by hand", arena, error)

    def _adopt(self, arena: str, kinds: set[str]) -> ManagedArena:
        names = segment_names(self._instance, arena)
        fds: list[int] = []
        try:
            for kind, name in (("index", names.index), ("data", names.data)):
                if kind in kinds:
                    fds.append(self._open(name))
            if kinds != {"index", "data"}:
                self._check_leftovers(fds[0], kinds)
                raise Unfit(f"its {({'index', 'data'} - kinds).pop()} segment is missing")
            return self._map(arena, fds[0], fds[1])
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def _open(self, name: str) -> int:
        """Opens a segment. Raises Unfit unless it is a regular file of this user that others cannot open."""
        try:
            fd = self._store.open(name)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            raise Unfit(f"{name} cannot be opened: {error}") from error
        status = os.fstat(fd)
        reason = None
        if not stat.S_ISREG(status.st_mode):
            reason = "is not a regular file"
        elif status.st_uid != os.geteuid():
            reason = f"belongs to uid {status.st_uid}, and this daemon runs as {os.geteuid()}"
        elif status.st_mode & 0o007:
            reason = f"has mode {stat.S_IMODE(status.st_mode):04o}: anybody may have changed it"
        if reason is not None:
            os.close(fd)
            raise Unfit(f"{name} {reason}")
        return fd

    @staticmethod
    def _check_leftovers(fd: int, kinds: set[str]) -> None:
        """Raises _Leftovers if one segment alone is what a killed creation or removal leaves.

        A removal unlinks the index first, so it leaves the data. A creation makes the index first, so it leaves a blank
        index.
        """
        if kinds == {"data"}:
            raise _Leftovers(have_no_users=False)
        header = _core.inspect_header(fd)
        if not header["magic_ok"] and _is_blank(fd):
            raise _Leftovers(have_no_users=True)

    def _map(self, arena: str, index_fd: int, data_fd: int) -> ManagedArena:
        header = _core.inspect_header(index_fd)
        if header["ready"] == 0:
            if header["magic_ok"] or (os.fstat(index_fd).st_size > 0 and _is_blank(index_fd)):
                raise _Leftovers(have_no_users=True)
            raise Unfit("its index has no shmreplay header")
        self._check_header(header, arena, index_fd, data_fd)
        try:
            tables = unpack_specs(header["specs"])
            managed = ManagedArena(arena, tables, index_fd, data_fd)
        except MissingPackage:
            raise
        except (ShmReplayError, ValueError, TypeError) as error:
            raise Unfit(str(error)) from error
        self._check_words(managed)
        for fd in (index_fd, data_fd):
            set_access(fd, self._group_id)
        return managed

    @staticmethod
    def _check_words(arena: ManagedArena) -> None:
        """Looks at what the registry will read: the tables' names and flags, and whose the sessions are.

        Raises Unfit for damage; _Leftovers if a daemon was killed after it had dropped the tables, before it removed
        them. Everybody who waits in them is told then.
        """
        native = arena.native
        infos = [native.table(index).info() for index in range(native.num_tables)]
        names, expected = [info["name"] for info in infos], [table.name for table in arena.tables]
        if names != expected:
            raise Unfit(f"its index has the tables {names}, their specs are of {expected}")
        if any(info["is_dropped"] for info in infos):
            try:
                native.drop(STOP_TIMEOUT_S)
            except (ShmReplayError, OSError, RuntimeError) as error:
                log.warning("arena %r: its clients could not be told that it is dropped: %s", arena.name, error)
            raise _Leftovers(have_no_users=False)
        try:
            damage = native.damaged_session(STOP_TIMEOUT_S)
        except (ShmReplayError, OSError, RuntimeError) as error:
            raise Unfit(f"a record of its sessions looks damaged, and {error}") from error
        if damage:
            raise Unfit(damage)

    def _check_header(self, header: dict[str, Any], arena: str, index_fd: int, data_fd: int) -> None:
        facts: list[Fact] = [
            ("magic", header["magic_ok"], True),
            ("word for being ready", header["ready"], 1),
            *layout_facts(self._store, header, index_fd, data_fd),
            ("instance", header["instance"], self._instance),
            ("arena name", header["name"], arena),
            ("boot id", header["boot_id"].strip().replace("-", ""), self._boot_id),
            ("pid namespace", header["pid_namespace"], self._pid_namespace),
        ]
        if misfit := first_misfit(facts):
            raise Unfit(misfit)


class _Leftovers(Exception):
    """The segments never became an arena, or are half removed.

    Args:
        have_no_users: nobody can have attached to them, unless the word that says so is damaged.
    """

    def __init__(self, *, have_no_users: bool) -> None:
        super().__init__("leftovers")
        self.have_no_users = have_no_users


def _keep(arena: str, error: Exception) -> None:
    """Says that an arena is left alone, with --discard too: nothing is known to be wrong with it."""
    reason = with_limit(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    log.error(
        "arena %r is not taken over, and stays as it is, with --discard too: it cannot be looked at: %s; mend that, "
        "then start again",
        arena,
        reason,
    )


def _is_blank(fd: int) -> bool:
    """Whether the segment is empty or its first page is all zeros, as before formatting."""
    return not any(os.pread(fd, 4096, 0))
