"""Words for the log about calls that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shmreplay.base import waiting
from shmreplay.base.processes import describe_process, process_name
from shmreplay.daemon.arenas.arena import ManagedArena

MAX_NAMED = 8  # processes that one line names

Wait = Mapping[str, Any]


def describe_calls(waits: Sequence[Wait], side: str) -> str:
    """How many calls have waited on a side of a table, whose they are, and for how long: `2 calls have waited to …`.

    Of each process that of its call that has waited longest, those who have waited longest first.
    """
    calls = "1 call has" if len(waits) == 1 else f"{len(waits)} calls have"
    return f"{calls} waited to {side}, of {_name_callers(waits)}"


def explain_wait(arena: ManagedArena, table: str, side: str) -> str:
    """Why calls of a side of a table wait."""
    index = next(index for index, each in enumerate(arena.tables) if each.name == table)
    return waiting.explain(arena.native.table(index).info(), side, arena.native.stats())


def _name_callers(waits: Sequence[Wait]) -> str:
    longest: dict[int, float] = {}
    for wait in waits:
        longest[wait["pid"]] = max(longest.get(wait["pid"], 0.0), wait["since_s"])
    pids = sorted(longest, key=lambda pid: -longest[pid])
    named = [f"{describe_process(pid, process_name(pid))} for {longest[pid]:.0f} s" for pid in pids[:MAX_NAMED]]
    if len(pids) > MAX_NAMED:
        named.append(f"{len(pids) - MAX_NAMED} more processes")
    return ", ".join(named)
