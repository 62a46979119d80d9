"""The figures of an arena and its tables for `client.stats()` and `stats --offline`, read without the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from shmreplay import _core
from shmreplay.base.process_names import process_name
from shmreplay.figures.item_figures import item_figures


def arena_figures(native: _core.Arena, tables: Sequence[str], items: bool = False) -> dict[str, Any]:
    """Returns `stats`, `sessions`, `waits` and `lock_holder` of the arena, and `tables` by name.

    Args:
        native: the arena.
        tables: names of its tables, in order.
        items: include figures of the items of each table, which takes some milliseconds more.
    """
    sessions = [
        {**session, "name": process_name(session["pid"], session["start_time"]), "role": _role(session)}
        for session in native.sessions()
    ]
    writers = Counter(name for session in sessions for name in session["writes"])
    learners = Counter(name for session in sessions for name in session["reads"])
    found = {}
    for index, name in enumerate(tables):
        table = native.table(index)
        info = table.info()
        users = _users(info, writers[info["name"]], learners[info["name"]])
        found[name] = {**info, **users, **(item_figures(table) if items else {})}
    return {
        "tables": found,
        "stats": native.stats(),
        "sessions": sessions,
        "waits": native.waits(),
        "lock_holder": native.lock_holder(),
    }


def _role(session: Mapping[str, Any]) -> str:
    """The role of a process, from what it has done since it attached."""
    writes = bool(session["writes"] or session["open_streams"])
    reads = bool(session["reads"] or session["updates"])
    if writes:
        return "both" if reads else "writer"
    return "learner" if reads else "idle"


def _users(info: Mapping[str, Any], writers: int, learners: int) -> dict[str, Any]:
    """How many live processes have inserted into a table or sampled from it, and whether all such are gone.

    A restored table has the counters of the saved one, but not the moment of the last call.
    """
    return {
        "writers": writers,
        "learners": learners,
        "writers_gone": writers == 0 and (info["inserts"] > 0 or info["last_insert_s_ago"] is not None),
        "learners_gone": learners == 0 and (info["samples"] > 0 or info["last_sample_s_ago"] is not None),
    }
