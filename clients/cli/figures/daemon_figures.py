"""A daemon's figures by table and by process: shards are joined, and so are a process' sessions in several arenas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shmreplay.base.checks import no_such_table
from shmreplay.base.waiting import admits_sample, explain
from shmreplay.clients.shards.shard_infos import joined
from shmreplay.errors import ShmReplayError
from shmreplay.protocol import package_version
from shmreplay.tables.shards import whole_name

HISTOGRAMS = ("ages", "times_sampled", "priorities")


@dataclass(frozen=True)
class Wait:
    """A call that waits: its table, its side ("insert" or "sample"), its process, and how long it has waited.

    `name` is the name of the process, empty if it cannot be read. `info` and `arena` are the figures of the table (or
    of the shard) and of the arena in which it waits.
    """

    table: str
    side: str
    pid: int
    name: str
    since_s: float
    info: Mapping[str, Any]
    arena: Mapping[str, Any]

    @property
    def reason(self) -> str:
        """Why it waits, with the limiter's numbers, in the same words as in its own log."""
        return explain(self.info, self.side, self.arena) if self.info else "its arena has failed"


@dataclass(frozen=True)
class TableFigures:
    """A table. `info` is as in client.stats(); it is empty if the arena failed, and `failure` says why."""

    name: str
    arenas: tuple[str, ...]
    info: dict[str, Any]
    failure: str | None
    parts: tuple[dict[str, Any], ...] = ()  # the info of each shard; of a table without shards its own
    waits: tuple[Wait, ...] = ()
    writers: int = 0
    learners: int = 0
    writers_gone: bool = False
    learners_gone: bool = False
    memory_bytes: int = 0  # of its arenas, which may contain other tables, too
    chunks_used: float | None = None  # from 0 to 1

    def admits_sample(self) -> bool:
        """Whether a sample would be admitted now, by at least one shard."""
        return any(admits_sample(info) for info in self.parts)


@dataclass(frozen=True)
class ProcessFigures:
    """An attached process: the items that it inserted, sampled and updated since it attached, in all arenas."""

    pid: int
    start_time: int
    name: str = ""
    role: str = "idle"
    inserts: int = 0
    samples: int = 0
    updates: int = 0
    open_streams: int = 0
    pinned_chunks: int = 0
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    arenas: tuple[str, ...] = ()
    waits: tuple[Wait, ...] = ()


@dataclass(frozen=True)
class Figures:
    """A daemon's figures at one moment."""

    daemon: dict[str, Any]
    arenas: dict[str, Any]
    tables: list[TableFigures] = field(default_factory=list)
    processes: list[ProcessFigures] = field(default_factory=list)

    @classmethod
    def read(cls, stats: Mapping[str, Any]) -> Figures:
        """The figures in a result of client.stats(): tables sorted by name, processes by id.

        Raises ShmReplayError if a figure is missing, because the daemon is of another version.
        """
        arenas = stats["arenas"]
        try:
            waits = [wait for arena in arenas.values() for wait in _waits(arena)]
            processes = _processes(arenas, waits)
            tables = _tables(arenas, waits, processes)
        except KeyError as error:
            raise ShmReplayError(
                f"this shmreplayd ({stats['daemon']['version']}) says nothing of {error}: it is of another version "
                f"than this program ({package_version()}); restart it"
            ) from error
        return cls(stats["daemon"], arenas, tables, processes)

    def table(self, name: str) -> TableFigures:
        """The table of that name.

        Raises:
            TableNotFound: there is no such table; the text lists the existing ones.
            ShmReplayError: its arena failed, so there are no figures of it.
        """
        for table in self.tables:
            if table.name == name:
                if not table.info:
                    raise ShmReplayError(f"table {name!r}: {table.failure}")
                return table
        raise no_such_table(name, (table.name for table in self.tables))


def arenas_of(entry: Mapping[str, Any]) -> list[str]:
    """The names of the arenas in an entry of `client.tables()`: one, or one for each shard."""
    names = entry["arena"]
    return [names] if isinstance(names, str) else list(names)


def arena_state(arena: Mapping[str, Any]) -> str:
    """`healthy`, or what is wrong with it."""
    if arena["failure"]:
        return str(arena["failure"])
    if "stats" in arena and arena["stats"]["failed"]:
        return "failed: its index is damaged"
    return "unlinked by somebody" if arena["is_unlinked"] else "healthy"


def _waits(arena: Mapping[str, Any]) -> Iterable[Wait]:
    names = {session["pid"]: session["name"] for session in arena.get("sessions", ())}
    for wait in arena.get("waits", ()):
        yield Wait(
            whole_name(wait["table"]),
            wait["side"],
            wait["pid"],
            names.get(wait["pid"], ""),
            wait["since_s"],
            arena["tables"].get(wait["table"], {}),
            arena["stats"],
        )


def _tables(
    arenas: Mapping[str, Any], waits: Iterable[Wait], processes: Iterable[ProcessFigures]
) -> list[TableFigures]:
    of_table: dict[str, list[Wait]] = {}
    for wait in waits:
        of_table.setdefault(wait.table, []).append(wait)
    parts: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for arena_name, arena in arenas.items():
        for table, info in arena["tables"].items():
            parts.setdefault(whole_name(table), []).append((arena_name, info))
    num_writers = Counter(name for process in processes for name in process.writes)
    num_learners = Counter(name for process in processes for name in process.reads)
    found = []
    for name, of_shards in sorted(parts.items()):
        infos = [info for _, info in of_shards]
        silent = [arena_name for arena_name, info in of_shards if not info]
        # If one shard has no figures, the table has none.
        info = {} if silent else infos[0] if len(infos) == 1 else _joined(name, infos)
        failures = [state for arena_name, _ in of_shards if (state := arena_state(arenas[arena_name])) != "healthy"]
        memory_bytes, chunks_used = memory_of([arenas[arena_name] for arena_name, _ in of_shards])
        found.append(
            TableFigures(
                name=name,
                arenas=tuple(arena_name for arena_name, _ in of_shards),
                info=info,
                failure=failures[0] if failures else None,
                parts=tuple(infos) if info else (),
                waits=tuple(of_table.get(name, ())),
                writers=num_writers[name],
                learners=num_learners[name],
                writers_gone=num_writers[name] == 0 and any(each.get("writers_gone") for each in infos),
                learners_gone=num_learners[name] == 0 and any(each.get("learners_gone") for each in infos),
                memory_bytes=memory_bytes,
                chunks_used=chunks_used,
            )
        )
    return found


def memory_of(arenas: Sequence[Mapping[str, Any]]) -> tuple[int, float | None]:
    """The size of the arenas in bytes, and the share of their chunks that is used."""
    stats = [arena["stats"] for arena in arenas if "stats" in arena]
    chunks = sum(each["num_chunks"] for each in stats)
    used = 1 - sum(each["free_chunks"] for each in stats) / chunks if chunks else None
    return sum(arena["index_bytes"] + arena["data_bytes"] for arena in arenas), used


def _joined(name: str, infos: list[dict[str, Any]]) -> dict[str, Any]:
    names = set.intersection(*(set(info) for info in infos)) - set(HISTOGRAMS)
    found = joined(name, {each: [info[each] for info in infos] for each in infos[0] if each in names})
    for each in HISTOGRAMS:
        if all(each in info for info in infos):
            found[each] = _joined_histogram([info[each] for info in infos])
    return found


def _joined_histogram(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Adds histograms up. Ages count inserts into the item's own shard. One may have fewer edges than another."""
    num_edges = min(len(part["edges"]) for part in parts)
    counts = [[*part["counts"][:num_edges], sum(part["counts"][num_edges:])] for part in parts]
    return {
        "edges": parts[0]["edges"][:num_edges],
        "counts": [sum(column) for column in zip(*counts, strict=True)],
        "sum": sum(part["sum"] for part in parts),
        "of": sum(part["of"] for part in parts),
    }


def _processes(arenas: Mapping[str, Any], waits: Iterable[Wait]) -> list[ProcessFigures]:
    sessions: dict[tuple[int, int], list[tuple[str, dict[str, Any]]]] = {}
    for arena_name, arena in arenas.items():
        for session in arena.get("sessions", ()):
            sessions.setdefault((session["pid"], session["start_time"]), []).append((arena_name, session))
    of_pid: dict[int, list[Wait]] = {}
    for wait in waits:
        of_pid.setdefault(wait.pid, []).append(wait)
    return [
        _process(pid, start_time, entries, tuple(of_pid.get(pid, ())))
        for (pid, start_time), entries in sorted(sessions.items())
    ]


def _process(
    pid: int, start_time: int, entries: list[tuple[str, dict[str, Any]]], waits: tuple[Wait, ...]
) -> ProcessFigures:
    sums = {
        name: sum(session[name] for _, session in entries)
        for name in ("inserts", "samples", "updates", "open_streams", "pinned_chunks")
    }
    tables = {
        name: tuple(sorted({whole_name(table) for _, session in entries for table in session[name]}))
        for name in ("writes", "reads")
    }
    roles = {session["role"] for _, session in entries} - {"idle"}
    role = "both" if len(roles) > 1 else next(iter(roles), "idle")
    names = [session["name"] for _, session in entries if session["name"]]
    arenas = tuple(sorted(arena_name for arena_name, _ in entries))
    name = names[0] if names else ""
    return ProcessFigures(
        pid, start_time, name, role, **sums, writes=tables["writes"], reads=tables["reads"], arenas=arenas, waits=waits
    )
