"""Explains in words why calls of a table wait: for the waiting caller, the daemon's log, `shmreplay top` and the page.

Pure functions of what `info()` of the native table returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_LIMIT = 1e300
STOPPING = (
    "the daemon is stopping: it saves a last checkpoint, then drops the table; if saving fails, the table stays in use"
)
INSERTS_PAUSED = "inserts are paused; `shmreplay resume TABLE` or table.resume() ends the pause"
SAMPLES_PAUSED = "samples are paused; `shmreplay resume TABLE` or table.resume() ends the pause"

Figures = Mapping[str, Any]


def explain(info: Figures, side: str, arena_stats: Figures) -> str:
    """Explains to an observer why calls of one side wait, with the numbers, and what could end the wait.

    Args:
        info: of the table, as in `client.stats()`.
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
    """Explains why an insert is not admitted. `attached` says how many processes there are to end the wait."""
    if info["is_stopping"]:
        return STOPPING
    if info["paused_inserts"]:
        return INSERTS_PAUSED
    waits = wait_for_sample(info)
    if info["count_deletes"]:  # a Queue or a Stack, whose difference is the number of its items
        return f"the queue is full ({info['difference']:g} of {bound(info['max_diff'])}); {waits}; {attached}"
    return (
        f"the rate limiter: inserts are as far ahead of samples as it allows; {waits}, or for set_rate_limiter(); "
        f"{attached}; one more insert would raise the difference from {info['difference']:g} to "
        f"{info['difference'] + info['samples_per_insert']:g}, above max_diff {bound(info['max_diff'])} "
        f"({counters(info)})"
    )


def explain_items(info: Figures, attached: str) -> str:
    """Explains why one more insert is admitted, but not all items that must go in together."""
    return (
        "the rate limiter: there is room for one more item, but not for all that must go in together; "
        f"{wait_for_sample(info)}, or for set_rate_limiter(); {attached}; the difference is {info['difference']:g}, "
        f"max_diff {bound(info['max_diff'])} ({counters(info)})"
    )


def explain_samples(info: Figures, attached: str) -> str:
    """Explains why a sample is not admitted. `attached` says how many processes there are to end the wait."""
    if info["is_stopping"]:
        return STOPPING
    if info["paused_samples"]:
        return SAMPLES_PAUSED
    size, least = info["size"], max(info["min_size_to_sample"], 1)
    waits = f"{wait_for_insert(info)}; {attached}"
    if size == 0 and least == 1:
        return f"the table is empty; {waits}"
    if size < least:
        return f"the table has {_items(size)}, and min_size_to_sample is {least}; {waits}"
    return (
        f"the rate limiter: samples are as far ahead of inserts as it allows; {waits}; one more sample would lower the "
        f"difference from {info['difference']:g} to {info['difference'] - 1:g}, below min_diff "
        f"{bound(info['min_diff'])} ({counters(info)})"
    )


def wait_for_sample(info: Figures) -> str:
    """What a call waits for that a sample would let go on; if samples are paused, who could end that."""
    paused = f", but {SAMPLES_PAUSED}" if info["paused_samples"] else ""
    return f"waiting for a sample, {last(info['last_sample_s_ago'])}{paused}"


def wait_for_insert(info: Figures) -> str:
    """What a call waits for that an insert would let go on; if inserts are paused, who could end that."""
    paused = f", but {INSERTS_PAUSED}" if info["paused_inserts"] else ""
    return f"waiting for an insert, {last(info['last_insert_s_ago'])}{paused}"


def lacks_room(arena_stats: Figures) -> bool:
    """Whether a writer may find no free chunk, or not enough free blocks for a large value."""
    return bool(arena_stats["free_chunks"] == 0 or 16 * arena_stats["free_blocks"] < arena_stats["num_blocks"])


def count_chunks(arena_stats: Figures, holders: str, own: str = "") -> str:
    """How many chunks are used, read and free, and how much of the heap is free.

    Args:
        holders: what uses chunks, such as "in use".
        own: a remark about the chunks that are being read.
    """
    stats = arena_stats
    chunks = (
        f"of {stats['num_chunks']} chunks of {stats['chunk_steps']} steps, {stats['used_chunks']} are {holders}, "
        f"{stats['retired_chunks']} are still being read{own}, {stats['free_chunks']} are free"
    )
    if stats["num_blocks"] == 0:
        return chunks
    blocks = (
        f"of {stats['num_blocks']} blocks of {stats['block_bytes']} bytes in the heap, {stats['free_blocks']} are free"
    )
    return f"{chunks}; {blocks}"


def counters(info: Figures) -> str:
    """The counters that the rate limiter compares."""
    return (
        f"{info['inserts']} inserts, {info['deletes']} deletes, {info['samples']} samples, at "
        f"{info['samples_per_insert']:g} samples per insert"
    )


def bound(value: float) -> str:
    """A bound of the difference."""
    return "none" if abs(value) > NO_LIMIT else f"{value:g}"


def last(seconds: float | None) -> str:
    """When the operation that a call waits for last happened."""
    return "there was none yet" if seconds is None else f"the last was {seconds:.0f} s ago"


def ago(seconds: float | None) -> str:
    """How long ago something was."""
    return "never" if seconds is None else f"{seconds:.0f} s ago"


def count_processes(number: int) -> str:
    """How many processes could end a wait."""
    return f"{number} process{'es are' if number != 1 else ' is'} attached"


def _items(number: int) -> str:
    return f"{number} item{'s' if number != 1 else ''}"


def _admitted(info: Figures, call: str) -> str:
    """Text for a call that will go on at once, or for an insert of too many items that must go in together."""
    together = ", but not all items that must go in together" if call == "insert" else ""
    return (
        f"the rate limiter admits one more {call} now{together} (difference {info['difference']:g}; {counters(info)})"
    )
