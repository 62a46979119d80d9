"""Texts about blocked calls: those of timeout errors, and the log lines of long waits."""

from __future__ import annotations

import logging
from typing import Any

from shmreplay import _core, selectors
from shmreplay.base import waiting
from shmreplay.tables.plan import harmonic
from shmreplay.tables.table import Table

logger = logging.getLogger("shmreplay")

FIRST_REPORT_S = _core.FIRST_REPORT_S
LATER_REPORTS_S = _core.LATER_REPORTS_S
_STATES = {"R": "running", "S": "asleep", "D": "waiting for a device", "T": "stopped", "t": "traced", "Z": "dead"}


def explain_inserts(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Explains why an insert is not admitted, with the numbers, and what could end the wait."""
    if info["can_insert"] and not info["is_stopping"] and not info["paused_inserts"]:
        return explain_room(arena, info)
    return waiting.explain_inserts(info, _attached(arena))


def explain_items(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Explains why the items of a stream's step are not admitted. They go in together, all or none."""
    if (
        info["is_stopping"]
        or info["paused_inserts"]
        or info["difference"] + info["samples_per_insert"] > info["max_diff"]
    ):
        return waiting.explain_inserts(info, _attached(arena))
    return waiting.explain_items(info, _attached(arena))


def explain_samples(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Explains why a sample is not admitted, with the numbers, and what could end the wait."""
    return waiting.explain_samples(info, _attached(arena))


def explain_room(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Explains why a step finds no free chunk, and what could end the wait."""
    paused = f" ({waiting.SAMPLES_PAUSED})" if info["paused_samples"] else ""
    remedy = f"The table evicts no items for room: sample or delete some{paused}, or create it with"
    if not _has_items(arena):
        remedy = "Close a writer, or create the table with"
    sizes = "a larger capacity_steps or more max_streams"
    if arena.stats()["num_blocks"] > 0:
        sizes = "a larger capacity_steps, mean_bytes of the columns in the heap, or more max_streams"
    return f"the arena has no room for more steps: {explain_chunks(arena)}. {remedy} {sizes}; {_attached(arena)}"


def explain_looks(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Explains why sample(count=False), which needs no admission, finds nothing."""
    return f"the table is empty; {waiting.wait_for_insert(info)}; {_attached(arena)}"


def explain_lock(arena: _core.Arena) -> str:
    """Which process holds the arena's lock now, as far as that can be seen without the lock."""
    holder = arena.lock_holder()
    return (
        " (nobody holds it now)" if holder is None else f" (process {holder['pid']}, which is {_state(holder['pid'])})"
    )


def explain_chunks(arena: _core.Arena) -> str:
    """How many chunks are used, read and free, and how much of the heap is free."""
    stats = arena.stats()
    own = ""
    if arena.names_chunks():
        own = " (some by this process itself: a view keeps its chunks until it is released)"
    holders = "referred to by items or open writers" if _has_items(arena) else "held by open writers, none by items"
    return waiting.count_chunks(stats, holders, own)


def _has_items(arena: _core.Arena) -> bool:
    return any(arena.table(index).size > 0 for index in range(arena.num_tables))


def _attached(arena: _core.Arena) -> str:
    others = len(arena.sessions()) - 1
    if others <= 0:
        return "no other process is attached, so only another thread of this process could end the wait"
    return f"{others} other process{'es are' if others > 1 else ' is'} attached"


def _state(pid: int) -> str:
    """The state of a process by /proc, such as stopped: it explains why a lock is held for long."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "not visible in /proc"
    return f"{_STATES.get(letter, 'in an unknown state')} (state {letter})"


def report_wait(arena: _core.Arena, table: _core.Table, name: str, what: str, pid: int, seconds: int) -> None:
    """Logs a long wait after ten seconds, then once a minute; after one second if nobody else could end it."""
    if what == "lock":
        logger.warning(
            "table %r: process %d has held the arena's lock for %d s without releasing it, and is %s",
            name,
            pid,
            seconds,
            _state(pid),
        )
        return
    is_due = seconds == FIRST_REPORT_S or (seconds > FIRST_REPORT_S and seconds % LATER_REPORTS_S == 0)
    if not is_due and seconds != 1:
        return
    waits_for_itself = arena.stats()["free_chunks"] == 0 and arena.names_chunks()
    is_lone = seconds == 1 and (waits_for_itself or len(arena.sessions()) <= 1)
    if not (is_due or is_lone):
        return
    info = {**table.info(), "can_insert": table.can_insert(1)}
    reasons = [explain(arena, info) for side, explain in _SIDES if info[side]]
    if waits_for_itself:
        reasons.append(explain_chunks(arena))
    if not reasons:  # no call waits for the limiter: this one waits for a chunk, or for an item to look at
        reasons = [explain_chunks(arena) if info["size"] > 0 else explain_looks(arena, info)]
    logger.warning("table %r: blocked for %d s: %s", name, seconds, "; ".join(reasons))


def report_eviction(arena: _core.Arena, table: _core.Table, spec: Table) -> None:
    """Warns that items are evicted before the table is full, says why, and how much room would be enough."""
    stats, info = arena.stats(), table.info()
    have = stats["num_chunks"] * stats["chunk_steps"]
    needed = -(-have * info["max_size"] // max(info["size"], 1))
    heap = ", or with larger mean_bytes if the values of its heap columns are larger" if stats["num_blocks"] > 0 else ""
    logger.warning(
        "table %r: its steps do not fit: with %d of %d items, the oldest are already evicted for room. %s. Create it "
        "with capacity_steps=%d or so%s%s. This is logged once; info().evicted_for_room counts these items",
        spec.name,
        info["size"],
        info["max_size"],
        *_explain_eviction(spec, stats["chunk_steps"], needed),
        heap,
    )


def _explain_eviction(spec: Table, chunk_steps: int, needed: int) -> tuple[str, int, str]:
    """Why the planned number of items does not fit, how many steps would be enough, and what else could be done."""
    if not isinstance(spec.remover, _BY_PRIORITY) or chunk_steps == 1:
        return "Its items have more steps than planned, or share fewer", needed, ""
    return (
        f"Its remover {type(spec.remover).__name__} evicts by priority, and a chunk of {chunk_steps} steps is free "
        "only once all its items are evicted. If priorities never change, that takes up to "
        f"{chunk_steps} times the space; the plan assumed that they change, which takes "
        f"{harmonic(chunk_steps):.2f} times the space",
        needed,
        ", or with chunk_steps=1, which avoids this",
    )


_BY_PRIORITY = (selectors.MinHeap, selectors.MaxHeap, selectors.Prioritized)
_SIDES = (("blocked_inserts", explain_inserts), ("blocked_samples", explain_samples))
