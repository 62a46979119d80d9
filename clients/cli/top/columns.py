"""The columns of both lists: what a row shows in each, and what it is sorted by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shmreplay import _core
from shmreplay.base.host_memory import show_bytes
from shmreplay.clients.cli.figures.daemon_figures import TableFigures
from shmreplay.clients.cli.terminal.printing import plain
from shmreplay.clients.cli.top.rates import NUM_READINGS, ClientRow, TableRow
from shmreplay.clients.cli.top.text import ASCII_MARKS, Marks, Span, bar, clip, duration, scale, short, sparkline

LONG_WAIT_S = float(_core.FIRST_REPORT_S)  # a longer wait is red; a caller logs it after the same time
SHORT_WAIT_S = 1.0  # a shorter wait is not shown: a rate limiter that works makes callers wait all the time
NOTHING = ""
_STYLES = ("good", "", "warn", "bad")  # in order


@dataclass(frozen=True)
class Column:
    """A column. `cell` returns a row's text and style for `width` cells; `order` what the row is sorted by.

    Lists of at least `least` cells show the column. If there is room, it grows up to `most` cells.
    """

    name: str
    title: str
    width: int
    cell: Callable[[Any, int, Marks], Span]
    order: Callable[[Any], Any]
    least: int = 0
    most: int = 0
    to_right: bool = True
    is_live: bool = False  # needs several readings

    def show(self, row: Any, width: int, marks: Marks) -> Span:
        """The cell in exactly so many cells."""
        text, style = self.cell(row, width, marks)
        return clip(text, width, to_right=self.to_right), style

    def length(self, row: Any) -> int:
        """The number of characters of a row's text, for a column that only has text."""
        return len(self.cell(row, 0, ASCII_MARKS)[0])


def _number(get: Callable[[Any], float | None]) -> Callable[[Any, int, Marks], Span]:
    return lambda row, width, marks: (short(get(row)), "")


def _of(get: Callable[[Any], float | None]) -> Callable[[Any], float]:
    """Orders by a number; rows without one come last."""

    def order(row: Any) -> float:
        number = get(row)
        return float("-inf") if number is None else number

    return order


def _of_info(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda row: get(row) if row.info else None


def _info_cell(cell: Callable[[Any, int, Marks], Span]) -> Callable[[Any, int, Marks], Span]:
    """Empty if there are no figures of the table."""
    return lambda row, width, marks: cell(row, width, marks) if row.info else (NOTHING, "")


def _fill(row: TableRow, width: int, marks: Marks) -> Span:
    return f"{bar(row.fill, width - 5, marks)} {row.fill:>4.0%}", "bar"


def _ratio(row: TableRow, width: int, marks: Marks) -> Span:
    return f"{short(row.ratio)}/{'any' if row.target is None else short(row.target)}", ""


def _reached(row: TableRow) -> float | None:
    return None if row.target is None or row.ratio is None else row.ratio / row.target


def _reached_bar(row: TableRow, width: int, marks: Marks) -> Span:
    reached = _reached(row)
    return (NOTHING, "") if reached is None else (bar(reached, width, marks), "bar")


def _place(row: TableRow) -> float | None:
    low, high = row.bounds
    return None if row.target is None or high <= low else (row.info["difference"] - low) / (high - low)


def _bounds(row: TableRow, width: int, marks: Marks) -> Span:
    low, high = row.bounds
    return scale(low, high, row.info["difference"], width, marks), "bar"


def _trend(get: Callable[[TableRow], Sequence[float | None]]) -> Callable[[Any, int, Marks], Span]:
    return lambda row, width, marks: (sparkline(get(row), width, marks), "bar")


def longest_wait_s(row: TableRow | ClientRow) -> float | None:
    """The longest wait of the calls that wait now in the table, or of the process. None if no call waits."""
    return max((wait.since_s for wait in row.figures.waits), default=None)


def table_state(row: TableRow) -> Span:
    """The state of a table in a few words, the worst first."""
    table, info = row.figures, row.info
    if not info:
        return f"failed: {table.failure}", "bad"
    parts: list[Span] = [(table.failure, "bad")] if table.failure is not None else []
    if info["is_stopping"]:
        parts.append(("stopping", "warn"))
    if is_draining(info):
        parts.append(("draining" if info["size"] else "drained", "warn"))
    elif paused := [side for side in ("inserts", "samples") if info[f"paused_{side}"]]:
        parts.append(("paused" if len(paused) == 2 else f"{paused[0]} paused", "warn"))
    for side in ("insert", "sample"):
        since = [wait.since_s for wait in table.waits if wait.side == side]
        if since and max(since) >= SHORT_WAIT_S:
            many = f" x{len(since)}" if len(since) > 1 else ""
            parts.append((f"{side}{many} {duration(max(since))}", wait_style(max(since))))
    if gone := [who for who in ("writers", "learners") if getattr(table, f"{who}_gone")]:
        parts.append((f"no {' or '.join(gone)}", "bad" if any(is_missed(table, who) for who in gone) else ""))
    worst = max((style for _, style in parts), key=_STYLES.index, default="good")
    return ", ".join(text for text, _ in parts) or "ok", worst


def wait_style(since_s: float) -> str:
    """The style of a wait: none until it is long, since waits are how a rate limiter works."""
    return "bad" if since_s >= LONG_WAIT_S else ""


def is_missed(table: TableFigures, who: str) -> bool:
    """Whether all `writers`, or all `learners`, have gone, and calls wait for them."""
    other = {"writers": "sample", "learners": "insert"}[who]
    return bool(getattr(table, f"{who}_gone")) and any(wait.side == other for wait in table.waits)


def is_draining(info: Mapping[str, Any]) -> bool:
    """Whether the table is draining: inserts are paused, and items are removed after their last sample."""
    return bool(info["max_times_sampled"] and info["paused_inserts"] and not info["paused_samples"])


def _severity(row: TableRow) -> tuple[int, float]:
    return _STYLES.index(table_state(row)[1]), longest_wait_s(row) or 0.0


def _client_waits(row: ClientRow, width: int, marks: Marks) -> Span:
    waits = sorted(row.figures.waits, key=lambda wait: -wait.since_s)
    if not waits:
        return "-", ""
    text = ", ".join(f"{wait.side} {duration(wait.since_s)} {wait.table}" for wait in waits)
    return text, wait_style(waits[0].since_s)


def _name(row: TableRow, width: int, marks: Marks) -> Span:
    return plain(row.figures.name), "bold"


def _tables_of(row: ClientRow) -> str:
    return ", ".join(sorted({*row.figures.writes, *row.figures.reads}))


TABLE_COLUMNS: Sequence[Column] = (
    Column("name", "table", 12, _name, lambda row: row.figures.name, most=32, to_right=False),
    Column("fill", "fill", 7, _info_cell(_fill), _of(_of_info(lambda row: row.fill)), most=20),
    Column("items", "items", 6, _info_cell(_number(lambda row: row.info["size"])),
        _of(_of_info(lambda row: row.info["size"])), least=99),
    Column("inserts", "ins/s", 6, _number(lambda row: row.inserts_per_s), _of(lambda row: row.inserts_per_s)),
    Column("samples", "smp/s", 6, _number(lambda row: row.samples_per_s), _of(lambda row: row.samples_per_s)),
    Column("ratio", "ratio", 9, _info_cell(_ratio), _of(_of_info(lambda row: row.ratio))),
    Column("reached", "reach", 6, _info_cell(_reached_bar), _of(_of_info(_reached)), least=89, most=16),
    Column("bounds", "bounds", 7, _info_cell(_bounds), _of(_of_info(_place)), most=20),
    Column("memory", "memory", 9, lambda row, width, marks: (show_bytes(row.figures.memory_bytes), ""),
        lambda row: row.figures.memory_bytes, least=119),
    Column("age", "age", 6, _number(lambda row: row.age_p50), _of(lambda row: row.age_p50), least=99),
    Column("writers", "wr", 3, _number(lambda row: row.figures.writers), _of(lambda row: row.figures.writers),
        least=109),
    Column("learners", "ln", 3, _number(lambda row: row.figures.learners), _of(lambda row: row.figures.learners),
        least=109),
    Column("inserts_trend", "ins/s trend", 12, _trend(lambda row: row.inserts_history),
        _of(lambda row: row.inserts_per_s), least=159, most=NUM_READINGS, is_live=True),
    Column("samples_trend", "smp/s trend", 12, _trend(lambda row: row.samples_history),
        _of(lambda row: row.samples_per_s), least=159, most=NUM_READINGS, is_live=True),
    Column("state", "state", 26, lambda row, width, marks: table_state(row), _severity, most=999, to_right=False),
)  # fmt: skip

CLIENT_COLUMNS: Sequence[Column] = (
    Column("pid", "pid", 8, lambda row, width, marks: (str(row.figures.pid), ""), lambda row: row.figures.pid),
    Column("name", "name", 15, lambda row, width, marks: (plain(row.figures.name) or "?", "bold"),
        lambda row: row.figures.name, most=40, to_right=False),
    Column("role", "role", 7, lambda row, width, marks: (row.figures.role, ""), lambda row: row.figures.role,
        to_right=False),
    Column("inserts", "ins/s", 6, _number(lambda row: row.inserts_per_s), _of(lambda row: row.inserts_per_s)),
    Column("samples", "smp/s", 6, _number(lambda row: row.samples_per_s), _of(lambda row: row.samples_per_s)),
    Column("updates", "upd/s", 6, _number(lambda row: row.updates_per_s), _of(lambda row: row.updates_per_s)),
    Column("streams", "streams", 7, _number(lambda row: row.figures.open_streams),
        _of(lambda row: row.figures.open_streams), least=99),
    Column("pinned", "pinned", 6, _number(lambda row: row.figures.pinned_chunks),
        _of(lambda row: row.figures.pinned_chunks), least=99),
    Column("tables", "tables", 16, lambda row, width, marks: (_tables_of(row), ""), _tables_of,
        least=99, most=60, to_right=False),
    Column("waits", "waits", 25, _client_waits, _of(longest_wait_s), most=999, to_right=False),
)  # fmt: skip


def layout(columns: Sequence[Column], width: int, longest_name: int = 0) -> list[tuple[Column, int]]:
    """The columns that a list of this width shows, each with its number of cells.

    Spare cells go to longer names first, then to all columns that may grow.
    """
    shown = [column for column in columns if column.least <= width]
    widths = [column.width for column in shown]
    spare = width - sum(widths) - len(shown) + 1
    for number, column in enumerate(shown):
        if column.name == "name":
            more = max(min(spare, longest_name - column.width, column.most - column.width), 0)
            widths[number] += more
            spare -= more
    growing = [number for number, column in enumerate(shown) if column.most > widths[number] and column.name != "name"]
    while spare > 0 and growing:
        for number in growing[:spare]:
            widths[number] += 1
            spare -= 1
        growing = [number for number in growing if shown[number].most > widths[number]]
    return list(zip(shown, widths, strict=True))
