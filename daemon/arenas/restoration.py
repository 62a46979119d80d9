"""Restoration: restores a checkpoint. All its arenas are filled before any is published, so all appear or none.

If the daemon is killed meanwhile, the next one removes what it finds: arenas that were never published, and those that
the restoration's mark names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shmreplay.checkpoints.checkpoint_file import RECORDS, CheckpointReader, Section, SectionKind
from shmreplay.columns.specs import MissingPackage
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.arenas.restored_arena import GEOMETRY, RestoredArena
from shmreplay.errors import CheckpointFailed, DamagedCheckpoint, SegmentFailed, ShmReplayError
from shmreplay.rate_limiters import readable_bound
from shmreplay.segments.arena_mark import ArenaMark
from shmreplay.segments.segment import Doing, SegmentStore, check_name
from shmreplay.tables.packed_specs import unpack_specs
from shmreplay.tables.table import Table

log = logging.getLogger("shmreplayd")

# What nonsensical contents raise whose checksums are right.
_MALFORMED = (LookupError, TypeError, ValueError, RuntimeError, SegmentFailed)


class Restoration:
    """The restoration of one checkpoint. Call `run` in a worker thread; the event loop may read the rest meanwhile.

    Args:
        asked: tables by name, as the caller wants them; only their rate limiters may differ from the saved ones.
        limiters: "checkpoint" keeps the saved limiters, "config" uses those of `asked`.
    """

    def __init__(
        self,
        reader: CheckpointReader,
        store: SegmentStore,
        instance: str,
        group_id: int | None,
        asked: Mapping[str, Table],
        limiters: str,
    ) -> None:
        self._reader = reader
        self._store = store
        self._instance = instance
        self._asked = asked
        self._takes_asked = limiters == "config"
        self._done_bytes = 0
        self.notes: list[str] = []  # what differs from what was asked for or saved
        self.arenas = [
            self._arena(store, instance, name, self._tables_of(specs), geometry, group_id)
            for name, specs, geometry in self._entries()
        ]

    def _entries(self) -> list[tuple[str, Sequence[Table], Mapping[str, int]]]:
        entries: list[tuple[str, Sequence[Table], Mapping[str, int]]]
        try:
            entries = [
                (check_name("arena", entry["name"]), unpack_specs(entry["specs"]), entry["geometry"])
                for entry in self._reader.manifest["arenas"]
            ]
        except MissingPackage as error:
            raise CheckpointFailed(f"{self._reader.path}: cannot be restored by this daemon: {error}") from error
        except (KeyError, TypeError, ValueError, ShmReplayError) as error:
            raise self._reader.damaged(f"its arenas cannot be read: {error}") from error
        for names in ([name for name, _, _ in entries], [table.name for _, tables, _ in entries for table in tables]):
            if len(set(names)) < len(names):
                raise self._reader.damaged(f"its arenas cannot be read: two have the same name in {', '.join(names)}")
        return entries

    def _arena(
        self, store: SegmentStore, instance: str, name: str, tables: Sequence[Table], geometry: Mapping[str, int],
        group_id: int | None,
    ) -> RestoredArena:  # fmt: skip
        try:
            if not set(geometry) <= set(GEOMETRY):
                raise ValueError(f"it has {', '.join(map(repr, geometry))}, expected {', '.join(map(repr, GEOMETRY))}")
            return RestoredArena(store, instance, name, tables, geometry, group_id)
        except _MALFORMED as error:
            text = f"the geometry {geometry!r:.200} of arena {name!r} is impossible: {error}"
            raise self._reader.damaged(text) from error

    def _tables_of(self, saved: Sequence[Table]) -> list[Table]:
        """The tables to make, with the saved limiter or the one asked for."""
        tables = []
        for table in saved:
            asked = self._asked.get(table.name)
            if asked is not None:
                differences = [text for text in table.difference(asked) if not text.startswith("rate_limiter:")]
                if differences:
                    raise ValueError(f"table {table.name!r} of {self._reader.path} differs: {'; '.join(differences)}")
            tables.append(asked if asked is not None and self._takes_asked else table)
        return tables

    @property
    def tables(self) -> list[Table]:
        return [table for arena in self.arenas for table in arena.tables]

    def describe(self) -> str:
        """The progress, for the client that waits."""
        percent = 100 * self._done_bytes // max(1, self._reader.num_bytes)
        return f"restoring {self._reader.path}: {percent} %"

    def run(self, promised_bytes: Callable[[], int]) -> list[ManagedArena]:
        """Makes and fills all arenas, then publishes them. Leaves none if it raises.

        Raises DamagedCheckpoint, which names section and offset; ShmReplayError if there is no room.
        """
        try:
            for number, arena in enumerate(self.arenas):
                self._fill(number, arena, promised_bytes)
            section = self._next(-1)
            if section.kind is not SectionKind.END:
                raise self._reader.damaged("expected the end section")
            return self._publish()
        finally:
            for arena in self.arenas:
                arena.discard()
            self._reader.close()

    def _publish(self) -> list[ManagedArena]:
        if len(self.arenas) < 2:
            return [arena.publish() for arena in self.arenas]
        mark = ArenaMark(self._store, self._instance, [arena.arena for arena in self.arenas], Doing.RESTORING)
        mark.set()
        published: list[ManagedArena] = []
        try:
            for arena in self.arenas:
                published.append(arena.publish())
            mark.remove()  # the commit: from here on a later daemon keeps all of them
        except BaseException:
            for arena, managed in zip(self.arenas, published, strict=False):
                arena.withdraw(managed)
            mark.remove()
            raise
        return published

    def _fill(self, number: int, arena: RestoredArena, promised_bytes: Callable[[], int]) -> None:
        section = self._next(number)
        if section.kind is not SectionKind.ARENA:
            raise self._reader.damaged("expected the arena's state")
        state = self._reader.plain(section)
        restorer = arena.begin(promised_bytes)
        try:
            self._check_names(arena, state["tables"])
            restorer.set_state(state)
            while (section := self._next(number)).kind is not SectionKind.ARENA_END:
                if arena.is_cancelled:
                    raise ShmReplayError(f"{self._reader.path} was not restored: the daemon is stopping")
                if section.kind < RECORDS:
                    raise self._reader.damaged("expected records of the arena")
                if section.kind in (SectionKind.ITEMS, SectionKind.FREE_SLOTS) and section.table >= len(arena.tables):
                    raise self._reader.damaged(
                        f"it is of table {section.table}, but the arena has {len(arena.tables)} tables"
                    )
                restorer.put(section.kind - RECORDS, section.table, section.payload)
            restorer.finish(None)
            for index, words in enumerate(state["tables"]):
                self._settle(arena, index, words)
        except DamagedCheckpoint as error:
            raise error if self._reader.path in str(error) else self._reader.damaged(str(error)) from None
        except _MALFORMED as error:
            raise self._reader.damaged(f"its contents make no sense: {error!r}") from error

    def _check_names(self, arena: RestoredArena, words: Sequence[Mapping[str, Any]]) -> None:
        """Checks that the state and the manifest have the same tables."""
        found, expected = [table["name"] for table in words], [table.name for table in arena.tables]
        if found != expected:
            raise self._reader.damaged(f"it has tables {found!r:.200}, the manifest has {expected!r:.200}")

    def _next(self, arena: int) -> Section:
        section = self._reader.next()
        self._done_bytes = section.offset
        if section.kind is not SectionKind.END and section.arena != arena:
            raise self._reader.damaged(f"it belongs to arena {section.arena}, expected {arena}")
        return section

    def _settle(self, arena: RestoredArena, index: int, words: Mapping[str, Any]) -> None:
        """Sets the limiter asked for, and notes what differs from the saved state."""
        table = arena.tables[index]
        where = f"table {table.name!r}"
        if words["paused"]:
            self._note(f"{where} was paused when it was saved; it is no longer paused")
        asked = self._asked.get(table.name)
        wanted = (table if asked is None else asked).rate_limiter.numbers()
        differences = [
            f"{name} {readable_bound(words[name])} instead of {readable_bound(value)}"
            for name, value in wanted.items()
            if words[name] != value
        ]
        if not differences:
            return
        if self._takes_asked and asked is not None:
            arena.set_rate_limiter(index)
            self._note(f"{where}: its rate limiter is the one asked for; the checkpoint had {', '.join(differences)}")
        else:
            self._note(f"{where}: its rate limiter is that of the checkpoint: {', '.join(differences)}")

    def _note(self, text: str) -> None:
        log.warning("restored: %s", text)
        self.notes.append(text)
