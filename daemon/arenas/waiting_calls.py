"""Describes calls that wait, for the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shmreplay.base import waiting
from shmreplay.base.process_names import describe_process, process_name
from shmreplay.daemon.arenas.arena import ManagedArena

MAX_NAMED = 8  # processes named in one line

Wait = Mapping[str, Any]


def describe_calls(waits: Sequence[Wait], side: str) -> str:
    """Says how many calls wait, and which processes they belong to: `2 calls have waited to …`.

    Each process has the wait of its longest call; the longest waits come first.
    """
    calls = "1 call has" if len(waits) == 1 else f"{len(waits)} calls have"
    return f"{calls} waited to {side}, of {_name_callers(waits)}"


def explain_wait(arena: ManagedArena, table: str, side: str) -> str:
    """Says why inserts or samples of a table wait."""
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
