"""Registry: all arenas and tables of one daemon. Creates, adopts, restores, opens and drops them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from shmreplay import _core
from shmreplay.base.checks import no_such_table
from shmreplay.base.host_memory import show_bytes
from shmreplay.checkpoints.checkpoint_file import CheckpointReader
from shmreplay.daemon.arenas.adoption import Adoption
from shmreplay.daemon.arenas.arena import STOP_TIMEOUT_S, ManagedArena
from shmreplay.daemon.arenas.creation import Creation
from shmreplay.daemon.arenas.drops import marked_as_dropped
from shmreplay.daemon.arenas.reaper import ClientProcess, Reaper, Session
from shmreplay.daemon.arenas.restoration import Restoration
from shmreplay.daemon.arenas.session_ends import close_session, find_gone
from shmreplay.daemon.config.limits import Limits
from shmreplay.daemon.config.open_files import check_descriptors
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import ShmReplayError, TableNotFound
from shmreplay.protocol import Deadline
from shmreplay.segments.segment import SegmentStore
from shmreplay.tables.plan import by_arena
from shmreplay.tables.table import Table

log = logging.getLogger("shmreplayd")

Result = TypeVar("Result")
OnProgress = Callable[[Callable[[], str]], None]  # takes a function that describes the progress


class Registry:
    """Lives on the event loop. Calls that wait inside an arena run on the workers, one at a time for each arena.

    `limits` apply to tables that are created later; they may be replaced at any time.
    """

    def __init__(
        self, store: SegmentStore, instance: str, group_id: int | None, workers: Workers, limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self._store = store
        self._instance = instance
        self._group_id = group_id
        self._workers = workers
        self._arenas: dict[str, ManagedArena] = {}
        self._creations: dict[Creation, asyncio.Future[Any]] = {}
        self._is_closing = False
        self._told_of_pages = False
        self.dropped: set[str] = set()  # tables that clients dropped
        self.reaper = Reaper(self._close_session)

    @property
    def arenas(self) -> list[ManagedArena]:
        return list(self._arenas.values())

    def find(self, table: str) -> list[tuple[ManagedArena, int]]:
        """The arena of a table and the table's index in it; of a table with shards one pair for each shard, in order.

        The name of a single shard is accepted as well. Raises TableNotFound, which lists the tables there are.
        """
        found = [
            (arena, index)
            for arena in self._arenas.values()
            for index, spec in enumerate(arena.tables)
            if table in (spec.name, spec.owner.name)
        ]
        if found:
            return sorted(found, key=lambda place: place[0].tables[place[1]].shard)
        raise no_such_table(table, _owners(self._arenas.values()))

    def find_whole(self, table: str, what: str) -> list[tuple[ManagedArena, int]]:
        """As `find`, for calls on a whole table. Raises ValueError for the name of one shard."""
        found = self.find(table)
        arena, index = found[0]
        whole = arena.tables[index].owner.name
        if whole != table:
            raise ValueError(f"{what}: {table!r} is one shard of table {whole!r}; expected the whole table's name")
        return found

    # --- creating ------------------------------------------------------------------------------------------------

    async def create_tables(self, tables: Sequence[Table], on_progress: OnProgress) -> list[str]:
        """Creates the tables that are missing, and returns their names. Creates all of them, or none.

        Raises ValueError, with the differences, if one exists with other specs; ShmReplayError if there is no room.
        """
        groups = by_arena(tables)
        for name, group in groups.items():
            if not self._is_there(name, group):  # refused before anything is made
                self.limits.check_streams(group)
        created: list[ManagedArena] = []
        try:
            for name, group in groups.items():
                arena = await self._ensure(name, group, on_progress)
                if arena is not None:
                    created.append(arena)
        except BaseException:
            with self._marked_as_dropped(created):
                for arena in created:
                    with contextlib.suppress(TableNotFound):  # a client dropped it meanwhile
                        await self._remove(arena, Deadline(STOP_TIMEOUT_S))
            raise
        return _owners(created)

    def missing(self, tables: Sequence[Table]) -> tuple[list[Table], list[str]]:
        """The tables that are missing; and the differences of those that exist with other specs."""
        missing: dict[str, Table] = {}
        problems: list[str] = []
        for name, group in by_arena(tables).items():
            try:
                if not self._is_there(name, group):
                    missing.update({table.owner.name: table.owner for table in group})
            except ValueError as error:
                problems.append(str(error))
        return list(missing.values()), list(dict.fromkeys(problems))

    async def _ensure(self, name: str, tables: list[Table], on_progress: OnProgress) -> ManagedArena | None:
        """Creates the arena. Returns None if it exists already."""
        creation: Creation | None = None
        while True:
            other = self._conflicting(name, tables)
            if other is not None:  # another client creates it: wait for the result, then look again
                on_progress(other.describe)
                await asyncio.wait({self._creations[other]})
            elif self._is_there(name, tables):
                return None
            elif creation is None:
                creation = await self._workers.run(Creation, self._store, self._instance, name, tables, self._group_id)
            else:
                break
        if self._is_closing:
            raise ShmReplayError(f"arena {name!r} was not created: the daemon is stopping")
        check_descriptors(f"arena {name!r}", 1 + len(self._creations))
        self.limits.check_memory(f"arena {name!r}", creation.total_bytes, self._taken_bytes())
        on_progress(creation.describe)
        self._creations[creation] = asyncio.ensure_future(self._create(creation))
        arena: ManagedArena = await asyncio.shield(self._creations[creation])
        return arena

    async def _create(self, creation: Creation) -> ManagedArena:
        """Runs as a separate task, so that the arena is registered even if the client that asked has gone."""
        try:
            arena = await self._workers.run(creation.run, lambda: self._promised([creation]))
            self._arenas[arena.name] = arena
        finally:
            del self._creations[creation]
        self._warn_if_swappable(arena)
        log.info("%s, %s of it in huge pages", creation.describe(), show_bytes(arena.huge_bytes))
        self._tell_of_pages([creation])
        return arena

    def _tell_of_pages(self, made: Sequence[Creation]) -> None:
        """Logs once that the kernel refused some huge pages."""
        errors = [creation.refused_huge_pages for creation in made if creation.refused_huge_pages]
        if errors and not self._told_of_pages:
            self._told_of_pages = True
            log.info("not all pages in %s are huge, the rest are small: the kernel says %r; see `shmreplay doctor`. "
                "This is logged once", self._store.directory, os.strerror(errors[0]))  # fmt: skip

    def _conflicting(self, name: str, tables: list[Table]) -> Creation | None:
        names = {table.name for table in tables}
        wholes = {table.owner.name: table.shards for table in tables}
        for creation in self._creations:
            others = {table.owner.name: table.shards for table in creation.tables}
            divided_otherwise = any(shards != others.get(whole, shards) for whole, shards in wholes.items())
            if creation.arena == name or names & {table.name for table in creation.tables} or divided_otherwise:
                return creation
        return None

    def _promised(self, but: Sequence[Creation]) -> int:
        """Bytes that creations under way, except those of `but`, have still to reserve."""
        return sum(creation.missing_bytes for creation in list(self._creations) if creation not in but)

    def _taken_bytes(self) -> int:
        """Shared memory of all arenas, including those being created."""
        return sum(sum(arena.sizes) for arena in self.arenas) + sum(each.total_bytes for each in self._creations)

    def _is_there(self, name: str, tables: list[Table]) -> bool:
        """Whether all these tables exist. Raises ValueError if only some exist, or with other specs."""
        for table in tables:
            for arena in self._arenas.values():
                for spec in arena.tables:
                    is_divided_otherwise = spec.owner.name == table.owner.name and spec.shards != table.shards
                    if spec.name == table.name or is_divided_otherwise:
                        _check_same(spec, table)
        existing = self._arenas.get(name)
        if existing is None:
            return False
        missing = [table.name for table in tables if table.name not in {spec.name for spec in existing.tables}]
        if missing:
            raise ValueError(
                f"arena {name!r} exists with tables {', '.join(spec.name for spec in existing.tables)}; "
                f"{', '.join(missing)} cannot be added: tables that share an arena must be created together"
            )
        return True

    # --- restoring -----------------------------------------------------------------------------------------------

    async def restore(
        self, path: str, asked: Sequence[Table], limiters: str, on_progress: OnProgress
    ) -> tuple[list[Table], list[str]]:
        """Restores all arenas of a checkpoint, or none. Returns the tables, and notes on them.

        Raises DamagedCheckpoint; ValueError if one of its tables exists already or differs from the one asked for;
        ShmReplayError if there is no room.
        """
        reader = await self._workers.run(CheckpointReader, path)
        try:
            by_name = {part.name: part for table in asked for part in table.parts}
            work = Restoration(reader, self._store, self._instance, self._group_id, by_name, limiters)
            self._check_possible(work)
        except BaseException:
            reader.close()
            raise
        on_progress(work.describe)
        task = asyncio.ensure_future(self._restore(work))
        await asyncio.shield(task)
        return work.tables, work.notes

    def _check_possible(self, work: Restoration) -> None:
        if self._is_closing:
            raise ShmReplayError("nothing was restored: the daemon is stopping")
        arenas = {arena.name for arena in self._arenas.values()} | {creation.arena for creation in self._creations}
        there = set(_owners(self._arenas.values())) | set(_owners(self._creations))
        for arena in work.arenas:
            found = sorted(there & set(_owners([arena])))
            if found or arena.arena in arenas:
                what = f"table {found[0]!r}" if found else f"arena {arena.arena!r}"
                raise ValueError(
                    f"{what} exists already; drop it (`shmreplay drop`, client.drop_tables) before you restore it "
                    "from a checkpoint"
                )
        check_descriptors("restoring the checkpoint", len(work.arenas) + len(self._creations))
        num_bytes = sum(arena.total_bytes for arena in work.arenas)
        self.limits.check_memory("restoring the checkpoint", num_bytes, self._taken_bytes())

    async def _restore(self, work: Restoration) -> None:
        """Runs as a separate task, as a creation does."""
        future = asyncio.ensure_future(self._workers.run(work.run, lambda: self._promised(work.arenas)))
        for creation in work.arenas:
            self._creations[creation] = future
        try:
            for arena in await future:
                arena.gone = find_gone(arena.native)  # those before the checkpoint are no news
                self._arenas[arena.name] = arena
        finally:
            for creation in work.arenas:
                del self._creations[creation]
        self._tell_of_pages(work.arenas)
        log.info("restored: %s", ", ".join(repr(table.name) for table in work.tables) or "a checkpoint without tables")

    # --- adopting ------------------------------------------------------------------------------------------------

    async def adopt(self, *, discard: bool) -> None:
        """Takes over the arenas that an earlier daemon of this instance left, with the sessions in them."""
        adoption = Adoption(self._store, self._instance, self._group_id, discard=discard)
        for arena in await self._workers.run(adoption.adopt_all):
            self._arenas[arena.name] = arena
            self._warn_if_swappable(arena)
            num_live, dead = self._adopt_sessions(arena)
            ended = f"; processes that have ended meanwhile: {', '.join(map(str, dead))}" if dead else ""
            log.info("arena %r taken over with %d live sessions%s", arena.name, num_live, ended)
        await self.set_stopping(False)  # undoes what a daemon did that was killed during its stop

    def _adopt_sessions(self, arena: ManagedArena) -> tuple[int, list[int]]:
        """Watches the live processes of an arena, reaps dead ones. Returns how many live, and the dead pids."""
        num_live, dead = 0, []
        for entry in arena.native.sessions():
            session = Session(arena.name, entry["session"], entry["generation"])
            try:
                process = self.reaper.watch(entry["pid"], entry["start_time"])
            except ProcessLookupError:
                self.reaper.reap(session)
                dead.append(entry["pid"])
            else:
                process.sessions.add(session)
                num_live += 1
        return num_live, dead

    @staticmethod
    def _warn_if_swappable(arena: ManagedArena) -> None:
        if not arena.is_locked_in_memory:
            log.info("arena %r: its index is not locked in memory (raise LimitMEMLOCK or ulimit -l)", arena.name)

    # --- sessions ------------------------------------------------------------------------------------------------

    async def open_session(self, arena: ManagedArena, process: ClientProcess, timeout_s: float | None) -> Session:
        """Returns the process' session in the arena, a new one if it has none."""
        session = await self._in_turn(arena, Deadline(timeout_s), lambda seconds: _session_for(arena, process, seconds))
        known = process.session_in(arena.name)
        if known is not None and known != session:  # a client reaped it, so it is no longer ours to close
            process.sessions.discard(known)
        process.sessions.add(session)
        if process.is_dead:  # it died while we waited, and the reaper did not know this session
            self.reaper.reap(session)
            raise ProcessLookupError(f"process {process.pid} has ended")
        return session

    async def detach(self, process: ClientProcess, session: Session) -> bool:
        """Closes a session because its process asks for it. Returns False if the process does not have it."""
        if session not in process.sessions:
            return False
        process.sessions.discard(session)
        await self._close_session(session)
        return True

    async def _close_session(self, session: Session) -> None:
        arena = self._arenas.get(session.arena)
        if arena is None:
            return
        with contextlib.suppress(TableNotFound):  # dropped meanwhile
            await self._in_turn(
                arena, Deadline(None), lambda seconds: close_session(arena, session.index, session.generation, seconds)
            )

    # --- tables --------------------------------------------------------------------------------------------------

    async def on_table(
        self, arena: ManagedArena, index: int, method: str, arguments: Sequence[Any], deadline: Deadline
    ) -> None:
        """Calls a method of a native table that waits for the arena's lock."""
        arena.check_usable()
        call = getattr(arena.native.table(index), method)

        def run(seconds: float) -> None:
            arena.check_usable()
            call(*arguments, seconds)

        await self._in_turn(arena, deadline, run)
        log.info("table %r: %s", arena.tables[index].name, method)

    async def drop_tables(self, tables: Sequence[str], timeout_s: float | None) -> None:
        """Drops tables and frees their memory. Callers blocked in them get TableClosed.

        Drops none, and raises, for an unknown table (TableNotFound), for the name of one shard (ValueError), and if
        other tables share an arena with one of them (ShmReplayError).
        """
        arenas = dict.fromkeys(arena for table in tables for arena, _ in self.find_whole(table, "drop_tables"))
        for arena in arenas:
            names = [spec.owner.name for spec in arena.tables]
            others = ", ".join(repr(name) for name in names if name not in tables)
            if others:
                table = next(name for name in names if name in tables)
                raise ShmReplayError(
                    f"table {table!r} shares arena {arena.name!r} with {others} and cannot be dropped "
                    f"alone; drop them together: drop_tables({names})"
                )
        deadline = Deadline(timeout_s)
        with self._marked_as_dropped(arenas):
            for arena in arenas:
                await self._remove(arena, deadline)
                for spec in arena.tables:
                    self.dropped.add(spec.name)
                    log.info("table %r dropped", spec.name)

    async def _remove(self, arena: ManagedArena, deadline: Deadline) -> None:
        def drop(seconds: float) -> None:
            if arena.is_usable():
                arena.native.drop(seconds)

        await self._in_turn(arena, deadline, drop)
        self._store.remove_arena(self._instance, arena.name)
        self._let_go(arena)

    async def _in_turn(self, arena: ManagedArena, deadline: Deadline, call: Callable[[float], Result]) -> Result:
        """As `ManagedArena.in_turn`. Raises TableNotFound once the arena is dropped."""

        def checked(seconds: float) -> Result:
            self._check_present(arena)
            return call(seconds)

        return await arena.in_turn(self._workers, deadline, checked)

    def _marked_as_dropped(self, arenas: Iterable[ManagedArena]) -> contextlib.AbstractContextManager[None]:
        return marked_as_dropped(self._store, self._instance, [arena.name for arena in arenas])

    def _let_go(self, arena: ManagedArena) -> None:
        del self._arenas[arena.name]
        self.reaper.forget_arena(arena.name)
        arena.close()

    def _check_present(self, arena: ManagedArena) -> None:
        """Raises TableNotFound if the arena was dropped while this call waited for its lock."""
        if self._arenas.get(arena.name) is not arena:
            raise TableNotFound(f"table {arena.tables[0].name!r} was dropped a moment ago")

    # --- the end -------------------------------------------------------------------------------------------------

    async def stop_creating(self) -> None:
        """Refuses new tables, and cancels those being created."""
        self._is_closing = True
        for creation in self._creations:
            creation.is_cancelled = True
        if self._creations:
            await asyncio.wait(self._creations.values())

    async def set_stopping(self, on: bool) -> None:
        """Makes inserts and samples of all tables wait, or go on. During a stop their effect would be lost."""
        await asyncio.gather(*(self._set_stopping(arena, on) for arena in self.arenas))

    async def _set_stopping(self, arena: ManagedArena, on: bool) -> None:
        try:
            if arena.is_usable():
                await self._workers.run(_set_stopping, arena.native, on)
        except (ShmReplayError, OSError, RuntimeError) as error:
            log.warning("arena %r: cannot make inserts and samples %s: %s", arena.name,
                "wait" if on else "go on", error)  # fmt: skip

    async def leave(self) -> None:
        """Ends without dropping tables. Attached processes continue; the next daemon of the instance takes over."""
        await self.stop_creating()
        self.reaper.close()
        await self.set_stopping(False)
        num_tables = sum(len(arena.tables) for arena in self.arenas)
        log.info("keeping %d tables for the next shmreplayd of this instance", num_tables)

    async def close(self) -> None:
        """Drops all tables and frees their memory, also of arenas that cannot be locked in time."""
        await self.stop_creating()
        self.reaper.close()
        log.info("dropping all %d tables", sum(len(arena.tables) for arena in self.arenas))
        with self._marked_as_dropped(self.arenas):
            await asyncio.gather(*(self._close_arena(arena) for arena in self.arenas))

    async def _close_arena(self, arena: ManagedArena) -> None:
        try:
            if arena.is_usable():
                await self._workers.run(arena.native.drop, STOP_TIMEOUT_S)
        except (ShmReplayError, OSError, RuntimeError) as error:
            log.warning("arena %r: its clients could not be told that it is dropped: %s", arena.name, error)
        try:
            self._store.remove_arena(self._instance, arena.name)
        except ShmReplayError as error:  # the other arenas are still freed
            log.error("arena %r: its memory could not be freed: %s", arena.name, error)


def _set_stopping(native: _core.Arena, on: bool) -> None:
    for index in range(native.num_tables):
        table = native.table(index)
        if table.info()["is_stopping"] != on:
            table.set_stopping(on, STOP_TIMEOUT_S)


def _owners(arenas: Iterable[ManagedArena | Creation]) -> list[str]:
    """The names of their tables; of shards, the name of the whole table."""
    return list(dict.fromkeys(table.owner.name for arena in arenas for table in arena.tables))


def _session_for(arena: ManagedArena, process: ClientProcess, timeout_s: float) -> Session:
    """The process' session, a new one unless it still has the one that we know of."""
    arena.check_usable()
    known = process.session_in(arena.name)
    if known is not None:
        for entry in arena.native.sessions():
            if (entry["session"], entry["generation"]) == (known.index, known.generation):
                return known
    return Session(arena.name, *arena.native.open_session(process.pid, process.start_time, timeout_s))


def _check_same(existing: Table, wanted: Table) -> None:
    differences = existing.difference(wanted)
    if differences:
        if all(text.startswith("rate_limiter:") for text in differences):
            advice = f"change it with client.set_rate_limiter({wanted.owner.name!r}, ...)"
        else:
            advice = "drop it first"
        raise ValueError(
            f"table {wanted.owner.name!r} exists with other specs: {'; '.join(differences)}; {advice}, or use the "
            "specs it has"
        )
