"""Commands: the requests of clients, one method for each command."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from shmreplay import rate_limiters
from shmreplay.daemon.arenas.access import Peer
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.arenas.reaper import ClientProcess, Session
from shmreplay.daemon.arenas.registry import OnProgress, Registry
from shmreplay.daemon.checkpoints.checkpoints import Checkpoints
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import ShmReplayError
from shmreplay.figures.arena_figures import arena_figures
from shmreplay.protocol import Deadline, Message, ProtocolError, package_version
from shmreplay.tables.shards import check_limiter_parts, limiter_part
from shmreplay.tables.table import Table

log = logging.getLogger("shmreplayd")


@dataclass(frozen=True)
class Answer:
    """The fields of an answer, descriptors to send with it and then close, and what to do after it was sent."""

    fields: dict[str, Any] = field(default_factory=dict)
    fds: list[int] = field(default_factory=list)
    after: Callable[[], None] | None = None


@dataclass(frozen=True)
class Caller:
    """The client that sent a request."""

    peer: Peer
    watch: Callable[[], ClientProcess]  # raises ProcessLookupError if it has ended
    on_progress: OnProgress


Command = Callable[[Message, Caller], Awaitable[Answer]]


class Commands:
    """All commands except hello."""

    def __init__(
        self,
        registry: Registry,
        workers: Workers,
        instance: str,
        num_clients: Callable[[], int],
        stop: Callable[[str], None],
        checkpoints: Checkpoints,
    ) -> None:
        self._registry = registry
        self._workers = workers
        self._instance = instance
        self._stop = stop
        self._checkpoints = checkpoints
        self._started = time.monotonic()
        self._num_clients = num_clients
        self._by_name: dict[str, Command] = {
            "create_tables": self._create_tables,
            "tables": self._tables,
            "open": self._open,
            "detach": self._detach,
            "drop_table": self._drop_table,
            "drop_tables": self._drop_tables,
            "reset": self._reset,
            "set_rate_limiter": self._set_rate_limiter,
            "pause": self._pause,
            "resume": self._resume,
            "checkpoint": self._checkpoint,
            "restore": self._restore,
            "stats": self._stats,
            "shutdown": self._shutdown,
        }

    async def run(self, request: Message, caller: Caller) -> Answer:
        """Carries out one request. Raises the error that the client receives."""
        command = self._by_name.get(_text(request, "command"))
        if command is None:
            raise ProtocolError(
                f"unknown command {request['command']!r:.100}; this shmreplayd ({package_version()}) knows "
                f"{', '.join(sorted(self._by_name))}"
            )
        return await command(request, caller)

    async def _create_tables(self, request: Message, caller: Caller) -> Answer:
        wires = request.get("tables")
        if not isinstance(wires, list) or not wires:
            raise ValueError("create_tables: expected a list of at least one table")
        tables = await self._workers.run(lambda: [Table.from_wire(wire) for wire in wires])
        created = await self._registry.create_tables(tables, caller.on_progress)
        return Answer({"created": created})

    async def _tables(self, request: Message, caller: Caller) -> Answer:
        tables = {}
        for arena in self._registry.arenas:
            infos = await self._workers.run(_table_infos, arena)
            for index, (table, info) in enumerate(zip(arena.tables, infos, strict=True)):
                tables[table.name] = {"spec": table.to_wire(), "arena": arena.name, "index": index, "info": info}
        return Answer({"tables": tables})

    async def _open(self, request: Message, caller: Caller) -> Answer:
        arena, index = self._registry.find(_text(request, "table"))[0]
        caller.on_progress(arena.describe_wait)
        session = await self._registry.open_session(arena, caller.watch(), _seconds(request))
        fields = {
            "spec": arena.tables[index].to_wire(),
            "arena": arena.name,
            "index": index,
            "session": session.index,
            "generation": session.generation,
            "index_bytes": arena.sizes[0],
            "data_bytes": arena.sizes[1],
        }
        return Answer(fields, arena.duplicate_fds())

    async def _detach(self, request: Message, caller: Caller) -> Answer:
        session = Session(_text(request, "arena"), _integer(request, "session"), _integer(request, "generation"))
        return Answer({"detached": await self._registry.detach(caller.watch(), session)})

    async def _drop_table(self, request: Message, caller: Caller) -> Answer:
        return await self._drop([_text(request, "table")], request, caller)

    async def _drop_tables(self, request: Message, caller: Caller) -> Answer:
        tables = request.get("tables")
        if not isinstance(tables, list) or not tables or not all(isinstance(table, str) for table in tables):
            raise ProtocolError(f"tables is {tables!r:.100}; expected a list of names")
        return await self._drop(tables, request, caller)

    async def _drop(self, tables: list[str], request: Message, caller: Caller) -> Answer:
        timeout_s = _seconds(request)
        arena, _ = self._registry.find(tables[0])[0]
        caller.on_progress(arena.describe_wait)
        await self._registry.drop_tables(tables, timeout_s)
        return Answer()

    async def _reset(self, request: Message, caller: Caller) -> Answer:
        return await self._on_table(request, caller, "reset")

    async def _set_rate_limiter(self, request: Message, caller: Caller) -> Answer:
        limiter, rebase = rate_limiters.from_wire(request.get("rate_limiter")), _flag(request, "rebase")
        self._registry.find_whole(_text(request, "table"), "set_rate_limiter")
        order = ("samples_per_insert", "min_size_to_sample", "min_diff", "max_diff", "count_deletes")

        def arguments(table: Table) -> list[Any]:
            if table.whole is None:
                numbers = limiter.numbers()
            else:
                check_limiter_parts(f"table {table.whole.name!r}", limiter, table.shards)
                numbers = limiter_part(limiter, table.shards, table.shard).numbers()
            return [*(numbers[name] for name in order), rebase]

        return await self._on_table(request, caller, "set_rate_limiter", arguments)

    async def _pause(self, request: Message, caller: Caller) -> Answer:
        inserts, samples = _flag(request, "inserts"), _flag(request, "samples")
        if not inserts and not samples:
            raise ValueError("pause: neither inserts nor samples were asked to pause")
        return await self._on_table(request, caller, "pause", lambda _: [inserts, samples])

    async def _resume(self, request: Message, caller: Caller) -> Answer:
        return await self._on_table(request, caller, "resume")

    async def _on_table(
        self, request: Message, caller: Caller, method: str, arguments: Callable[[Table], list[Any]] = lambda _: []
    ) -> Answer:
        """Calls a method of the native table, or of each of its shards, that waits for the arena's lock."""
        deadline = Deadline(_seconds(request))
        places = self._registry.find(_text(request, "table"))
        # All arguments are checked before the first change.
        all_arguments = [arguments(arena.tables[index]) for arena, index in places]
        for (arena, index), values in zip(places, all_arguments, strict=True):
            caller.on_progress(arena.describe_wait)
            await self._registry.on_table(arena, index, method, values, deadline)
        return Answer()

    async def _checkpoint(self, request: Message, caller: Caller) -> Answer:
        try:
            return Answer({"path": await self._checkpoints.save(caller.on_progress)})
        except (ShmReplayError, OSError) as error:
            log.error("a checkpoint that %s asked for failed: %s", caller.peer, error)
            raise

    async def _restore(self, request: Message, caller: Caller) -> Answer:
        if caller.peer.uid not in (os.geteuid(), 0):  # it opens a path that the caller names
            raise PermissionError(f"only uid {os.geteuid()}, which runs this shmreplayd, may restore a checkpoint")
        wires = request.get("tables", [])
        if not isinstance(wires, list):
            raise ProtocolError("restore: tables is not a list")
        asked = await self._workers.run(lambda: [Table.from_wire(wire) for wire in wires])
        path, limiters = _text(request, "path"), _text(request, "limiters")
        return Answer(await self._checkpoints.restore(path, asked, limiters, caller.on_progress))

    async def infos(self, table: str) -> list[dict[str, Any]]:
        """The `info()` of a table whose limiter is to change, or of each of its shards. Takes no lock.

        Raises TableNotFound, ValueError for the name of one shard, SegmentFailed.
        """
        places = self._registry.find_whole(table, "set_rate_limiter")
        return [await self._workers.run(_table_info, arena, index) for arena, index in places]

    async def stats(self, items: bool = False) -> dict[str, Any]:
        """The figures of the daemon, its arenas and their tables, with `items` also of the items. Takes no lock."""
        arenas = {}
        for arena in self._registry.arenas:
            arenas[arena.name] = await self._workers.run(_arena_stats, arena, items)
        reaper = self._registry.reaper
        daemon = {
            "pid": os.getpid(),
            "version": package_version(),
            "instance": self._instance,
            "uptime_s": time.monotonic() - self._started,
            "clients": self._num_clients(),
            "processes": len(reaper.processes),
            "deaths": reaper.num_deaths,
            "checkpoint": self._checkpoints.status(),
        }
        return {"daemon": daemon, "arenas": arenas}

    async def _stats(self, request: Message, caller: Caller) -> Answer:
        return Answer(await self.stats(_flag({"items": False, **request}, "items")))

    async def _shutdown(self, request: Message, caller: Caller) -> Answer:
        if caller.peer.uid != os.geteuid():
            raise PermissionError(f"only uid {os.geteuid()}, which runs this shmreplayd, may shut it down")
        return Answer(after=lambda: self._stop(f"{caller.peer} asked for a shutdown"))


def _table_infos(arena: ManagedArena) -> list[dict[str, Any]]:
    if not arena.is_usable():
        return [{} for _ in arena.tables]
    return [arena.native.table(index).info() for index in range(len(arena.tables))]


def _table_info(arena: ManagedArena, index: int) -> dict[str, Any]:
    arena.check_usable()
    return arena.native.table(index).info()


def _arena_stats(arena: ManagedArena, items: bool) -> dict[str, Any]:
    names = [table.name for table in arena.tables]
    usable = arena.is_usable()
    figures = arena_figures(arena.native, names, items) if usable else {"tables": {name: {} for name in names}}
    return {
        "index_bytes": arena.sizes[0],
        "data_bytes": arena.sizes[1],
        "huge_bytes": arena.huge_bytes,
        "failure": arena.failure,
        "is_unlinked": arena.is_unlinked,
        **figures,
    }


def _text(request: Message, name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise ProtocolError(f"{name} is {value!r:.100}; expected a str")
    return value


def _integer(request: Message, name: str) -> int:
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError(f"{name} is {value!r:.100}; expected an integer")
    return value


def _flag(request: Message, name: str) -> bool:
    value = request.get(name)
    if not isinstance(value, bool):
        raise ProtocolError(f"{name} is {value!r:.100}; expected true or false")
    return value


def _seconds(request: Message) -> float | None:
    value = request.get("timeout_s")
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= 0:
        raise ValueError(f"timeout_s is {value!r:.100}; expected seconds >= 0, or None to wait for ever")
    return float(value)
