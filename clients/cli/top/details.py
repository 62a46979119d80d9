"""The lines about the selected row, below the list."""

from __future__ import annotations

import math

from shmreplay.base.host_memory import show_bytes
from shmreplay.clients.cli.terminal.printing import counted, plain
from shmreplay.clients.cli.top.columns import is_missed, wait_style
from shmreplay.clients.cli.top.rates import ClientRow, TableRow
from shmreplay.clients.cli.top.text import Line, duration, short, wrap

INDENT = "    "


def details(row: TableRow | ClientRow, width: int) -> list[Line]:
    """Lines about the row, the most important first."""
    return _of_table(row, width) if isinstance(row, TableRow) else _of_client(row, width)


def _of_table(row: TableRow, width: int) -> list[Line]:
    name, info = plain(row.figures.name), row.info
    if not info:
        return _lines(f"{name}: {row.figures.failure}", width, "bad")
    low, high = row.bounds
    bounds = "without bounds" if math.isinf(low) and math.isinf(high) else f"in {short(low)}..{short(high)}"
    lines = _lines(
        f"{name}: {info['size']:,} of {info['max_size']:,} items, {info['inserts']:,} inserts, "
        f"{info['samples']:,} samples, {info['deletes']:,} deletes",
        width,
        "bold",
    )
    lines += _waits(row, width)
    for who, side in (("writers", "sample"), ("learners", "insert")):
        if is_missed(row.figures, who):
            lines += _lines(f"all {who} are gone: no attached process can end the wait of a {side}", width, "bad")
    lines += _lines(
        f"limiter: {info['samples_per_insert']:g} samples per insert from {info['min_size_to_sample']:,} items on, "
        f"difference {short(info['difference'])} {bounds}",
        width,
    )
    lines += _lines(
        f"last insert {_ago(info['last_insert_s_ago'])}, last sample {_ago(info['last_sample_s_ago'])} | waited in "
        f"all: inserts {duration(info['blocked_inserts_s'])}, samples {duration(info['blocked_samples_s'])}",
        width,
    )
    age = f", half of its items younger than {short(row.age_p50)} inserts" if row.age_p50 is not None else ""
    room = f", {info['evicted_for_room']:,} of them for room" if info["evicted_for_room"] else ""
    users = f"{counted(row.figures.writers, 'writer')}, {counted(row.figures.learners, 'learner')}"
    lines += _lines(f"{users}{age} | {info['evicted']:,} evicted{room}", width)
    lines += _lines(_memory(row), width)
    if row.figures.failure is not None:
        lines += _lines(row.figures.failure, width, "bad")
    return lines


def _memory(row: TableRow) -> str:
    """The memory of its arenas, which other tables may share."""
    figures = row.figures
    used = "" if figures.chunks_used is None else f", {figures.chunks_used:.0%} of the chunks in use"
    where = f"arena {figures.arenas[0]}" if len(figures.arenas) == 1 else f"{len(figures.arenas)} arenas"
    return f"memory: {show_bytes(figures.memory_bytes)} of {where}{used}"


def _waits(row: TableRow, width: int) -> list[Line]:
    """The longest wait of each side, with the reason and the number of waits."""
    lines: list[Line] = []
    for side in ("insert", "sample"):
        waits = sorted((wait for wait in row.figures.waits if wait.side == side), key=lambda wait: -wait.since_s)
        if waits:
            more = f" (+{len(waits) - 1})" if len(waits) > 1 else ""
            who = f"{plain(waits[0].name) or 'process'} {waits[0].pid}{more}"
            text = f"{side}: {who} waits {duration(waits[0].since_s)}: {waits[0].reason}"
            lines += _lines(text, width, wait_style(waits[0].since_s))
    return lines


def _of_client(row: ClientRow, width: int) -> list[Line]:
    process = row.figures
    lines = _lines(
        f"{plain(process.name) or 'process'} {process.pid}: {process.inserts:,} inserts, {process.samples:,} samples, "
        f"{process.updates:,} updates since it attached to {', '.join(process.arenas)}",
        width,
        "bold",
    )
    for wait in sorted(process.waits, key=lambda wait: -wait.since_s):
        text = f"{wait.side} into {wait.table}" if wait.side == "insert" else f"sample from {wait.table}"
        lines += _lines(f"{text} waits {duration(wait.since_s)}: {wait.reason}", width, wait_style(wait.since_s))
    if process.writes:
        lines += _lines(f"inserts into {', '.join(process.writes)}", width)
    if process.reads:
        lines += _lines(f"samples from {', '.join(process.reads)}", width)
    return lines


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{duration(seconds)} ago"


def _lines(text: str, width: int, style: str = "") -> list[Line]:
    return [[(line, style)] for line in wrap(text, width, INDENT)]
