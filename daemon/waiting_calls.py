"""Words for the log about calls that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shmreplay import waiting
from shmreplay.daemon.arena import ManagedArena
from shmreplay.processes import describe_process, process_name

MAX_NAMED = 8  # processes that one line names

Wait = Mapping[str, Any]


def name_callers(waits: Sequence[Wait]) -> str:
    """Whose calls they are and for how long the longest of each process has waited, those who wait longest first."""
    longest: dict[int, float] = {}
    for wait in waits:
        longest[wait["pid"]] = max(longest.get(wait["pid"], 0.0), wait["since_s"])
    pids = sorted(longest, key=lambda pid: -longest[pid])
    named = [
        f"{describe_process(pid, process_name(pid))} has waited {longest[pid]:.0f} s" for pid in pids[:MAX_NAMED]
    ]
    if len(pids) > MAX_NAMED:
        named.append(f"{len(pids) - MAX_NAMED} more wait")
    return ", ".join(named)


def explain(arena: ManagedArena, table: str, side: str) -> str:
    """Why calls of a side of a table wait."""
    index = next(index for index, each in enumerate(arena.tables) if each.name == table)
    return waiting.explain(arena.native.table(index).info(), side, arena.native.stats())
