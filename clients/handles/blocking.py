"""What a blocked call has to say: the texts of timeouts, and the log lines of long waits."""

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
    """Says why an insert is not admitted, with the numbers, and who could end that."""
    if info["can_insert"] and not info["is_stopping"] and not info["paused_inserts"]:
        return explain_room(arena, info)
    return waiting.explain_inserts(info, _attached(arena))


def explain_items(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Says why items of a stream's step, which go in together, are not admitted, with the numbers."""
    if (
        info["is_stopping"]
        or info["paused_inserts"]
        or info["difference"] + info["samples_per_insert"] > info["max_diff"]
    ):
        return waiting.explain_inserts(info, _attached(arena))
    return (
        f"the rate limiter: {waiting.counters(info)}; one more insert would be admitted, under max_diff "
        f"{waiting.bound(info['max_diff'])}, but not all that go in together. A sample lets them go on "
        f"(last one {waiting.ago(info['last_sample_s_ago'])}), or set_rate_limiter(); {_attached(arena)}"
    )


def explain_samples(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Says why a sample is not admitted, with the numbers, and who could end that."""
    return waiting.explain_samples(info, _attached(arena))


def explain_room(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Says why a step finds no chunk, and who could end that."""
    remedy = "The table's items are not evicted for room; sample or delete some, or create it with"
    if not _has_items(arena):
        remedy = "Close a writer, or create the table with"
    sizes = "a larger capacity_steps or more max_streams"
    if arena.stats()["num_blocks"] > 0:
        sizes = "a larger capacity_steps, mean_bytes of the columns in the heap, or more max_streams"
    return f"the arena has no room for more steps: {explain_chunks(arena)}. {remedy} {sizes}; {_attached(arena)}"


def explain_looks(arena: _core.Arena, info: dict[str, Any]) -> str:
    """Says why a look, which needs no admission, has nothing to see."""
    last = waiting.ago(info["last_insert_s_ago"])
    return f"the table is empty. An insert lets it go on (last one {last}); {_attached(arena)}"


def explain_lock(arena: _core.Arena) -> str:
    """Says who has the arena's lock now, as far as that can be seen without it."""
    holder = arena.lock_holder()
    return " (nobody has it now)" if holder is None else f" (process {holder['pid']}, which is {_state(holder['pid'])})"


def explain_chunks(arena: _core.Arena) -> str:
    """Says which chunks are where, and how much of the heap is free."""
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
        return "no other process is attached now: until another attaches, only a thread of this one could end the wait"
    return f"{others} other process{'es are' if others > 1 else ' is'} attached"


def _state(pid: int) -> str:
    """What a process is at, by /proc: who was stopped, or waits for a disk, explains a long hold."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "not to be seen in /proc"
    return f"{_STATES.get(letter, 'in a state of its own')} (state {letter})"


def report_wait(arena: _core.Arena, table: _core.Table, name: str, what: str, pid: int, seconds: int) -> None:
    """Logs a long wait: one for oneself after a second, any after ten, then once a minute."""
    if what == "lock":
        logger.warning(
            "table %r: process %d has held the arena's lock for %d s in one hold, and is %s",
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
    if not reasons:  # nobody waits for the limiter: it is a chunk that is wanted, or an item to look at
        reasons = [explain_chunks(arena) if info["size"] > 0 else explain_looks(arena, info)]
    logger.warning("table %r: blocked for %d s: %s", name, seconds, "; ".join(reasons))


def report_eviction(arena: _core.Arena, table: _core.Table, spec: Table) -> None:
    """Warns that items are evicted before the table is full, says why, and what room it would take."""
    stats, info = arena.stats(), table.info()
    have = stats["num_chunks"] * stats["chunk_steps"]
    needed = -(-have * info["max_size"] // max(info["size"], 1))
    heap = ", or with larger mean_bytes if its columns in the heap have more" if stats["num_blocks"] > 0 else ""
    logger.warning(
        "table %r: its steps do not fit: at %d of %d items the oldest are evicted for room. %s: create it with "
        "capacity_steps=%d or so%s%s. Said once; info().evicted_for_room counts",
        spec.name,
        info["size"],
        info["max_size"],
        *_explain_eviction(spec, stats["chunk_steps"], needed),
        heap,
    )


def _explain_eviction(spec: Table, chunk_steps: int, needed: int) -> tuple[str, int, str]:
    """Why items that were planned for do not fit, how many steps would, and what else could be done."""
    if not isinstance(spec.remover, _BY_PRIORITY) or chunk_steps == 1:
        return "Its items span more steps than planned for, or overlap less", needed, ""
    return (
        f"Its remover {type(spec.remover).__name__} goes by priority, and a chunk of {chunk_steps} steps is free only "
        f"when its last item has gone: where priorities stay as they are that takes up to {chunk_steps} times the "
        f"space, and {harmonic(chunk_steps):.2f} times where they change, which is planned for",
        needed,
        ", or chunk_steps=1, where it makes no difference",
    )


_BY_PRIORITY = (selectors.MinHeap, selectors.MaxHeap, selectors.Prioritized)
_SIDES = (("blocked_inserts", explain_inserts), ("blocked_samples", explain_samples))
