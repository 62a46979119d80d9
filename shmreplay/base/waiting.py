"""Why a side of a table is not admitted, in words: the same for who waits, the daemon's log, `top` and the page.

Pure functions of what `info()` of the native table says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_LIMIT = 1e300
STOPPING = "the daemon is stopping and saves a last checkpoint; then the table is dropped, or goes on if that fails"
INSERTS_PAUSED = "inserts are paused; `shmreplay resume TABLE` or table.resume() lets them go on"
SAMPLES_PAUSED = "samples are paused; `shmreplay resume TABLE` or table.resume() lets them go on"

Figures = Mapping[str, Any]


def explain(info: Figures, side: str, arena_stats: Figures) -> str:
    """Says to somebody else why calls of a side wait, with the numbers, and who could end that.

    Args:
        info: of the table, as `client.stats()` has it.
        side: "insert" or "sample".
        arena_stats: `stats` of its arena.
    """
    attached = count_processes(arena_stats["num_sessions"])
    if side == "insert" and admits_insert(info) and lacks_room(arena_stats):
        return f"the arena has no room for more steps: {count_chunks(arena_stats, 'in use')}; {attached}"
    if side == "insert":
        return _admitted(info, "insert") if admits_insert(info) else explain_inserts(info, attached)
    return _admitted(info, "sample") if admits_sample(info) else explain_samples(info, attached)


def admits_insert(info: Figures) -> bool:
    """Whether the limiter lets one more insert in."""
    if info["is_stopping"] or info["paused_inserts"]:
        return False
    few = info["size"] + 1 <= info["min_size_to_sample"]
    return bool(few or info["difference"] + info["samples_per_insert"] <= info["max_diff"])


def admits_sample(info: Figures) -> bool:
    """Whether the limiter lets one more sample be drawn."""
    if info["is_stopping"] or info["paused_samples"] or info["size"] < max(info["min_size_to_sample"], 1):
        return False
    return bool(info["difference"] - 1 >= info["min_diff"])


def explain_inserts(info: Figures, attached: str) -> str:
    """Says why an insert is not admitted; `attached`: who could end that."""
    if info["is_stopping"]:
        return STOPPING
    if info["paused_inserts"]:
        return INSERTS_PAUSED
    return (
        f"the rate limiter: {counters(info)}; one more insert would make the difference "
        f"{info['difference'] + info['samples_per_insert']:g}, over max_diff {bound(info['max_diff'])}, with the "
        f"table beyond min_size_to_sample {info['min_size_to_sample']}. A sample lets it go on "
        f"(last one {ago(info['last_sample_s_ago'])}), or set_rate_limiter(); {attached}"
    )


def explain_samples(info: Figures, attached: str) -> str:
    """Says why a sample is not admitted; `attached`: who could end that."""
    if info["is_stopping"]:
        return STOPPING
    if info["paused_samples"]:
        return SAMPLES_PAUSED
    size, min_size = info["size"], info["min_size_to_sample"]
    inserts = f"Inserts let it go on (last one {ago(info['last_insert_s_ago'])}); {attached}"
    if size < max(min_size, 1):
        return f"the table has {size} items, fewer than the {max(min_size, 1)} of min_size_to_sample. {inserts}"
    return (
        f"the rate limiter: {counters(info)}; one more sample would make the difference {info['difference'] - 1:g}, "
        f"under min_diff {bound(info['min_diff'])}. {inserts}"
    )


def lacks_room(arena_stats: Figures) -> bool:
    """Whether a writer that needs a chunk, or blocks for a large value, may not find them."""
    return bool(arena_stats["free_chunks"] == 0 or 16 * arena_stats["free_blocks"] < arena_stats["num_blocks"])


def count_chunks(arena_stats: Figures, holders: str, own: str = "") -> str:
    """Which chunks are where, and how much of the heap is free; `own`: a remark on those that are being read."""
    stats = arena_stats
    chunks = (
        f"of {stats['num_chunks']} chunks of {stats['chunk_steps']} steps {stats['used_chunks']} are {holders}, "
        f"{stats['retired_chunks']} are still being read{own}, {stats['free_chunks']} are free"
    )
    if stats["num_blocks"] == 0:
        return chunks
    blocks = (
        f"of {stats['num_blocks']} blocks of {stats['block_bytes']} bytes in the heap {stats['free_blocks']} are free"
    )
    return f"{chunks}; {blocks}"


def counters(info: Figures) -> str:
    """The limiter's numbers."""
    return (
        f"{info['inserts']} inserts, {info['deletes']} deletes, {info['samples']} samples, at "
        f"{info['samples_per_insert']:g} samples per insert: difference {info['difference']:g}"
    )


def bound(value: float) -> str:
    """A bound of the difference."""
    return "none" if abs(value) > NO_LIMIT else f"{value:g}"


def ago(seconds: float | None) -> str:
    """When something was last done."""
    return "never" if seconds is None else f"{seconds:.0f} s ago"


def count_processes(number: int) -> str:
    """How many could end a wait."""
    return f"{number} process{'es are' if number != 1 else ' is'} attached"


def _admitted(info: Figures, call: str) -> str:
    """Of a call that was just let go on, or of items that have to go in together."""
    together = ", but not all that go in together" if call == "insert" else ""
    return f"the rate limiter: {counters(info)}; it admits one more {call} now{together}"
