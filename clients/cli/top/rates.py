"""Rates: rows of the screen, with the figures of tables and clients and their rates since the last reading."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shmreplay.clients.cli.figures.daemon_figures import Figures, ProcessFigures, TableFigures
from shmreplay.rate_limiters import ratio_reached, readable_bound

NUM_READINGS = 60  # that are kept for sparklines
History = deque[float | None]


@dataclass(frozen=True)
class TableRow:
    """A table. Rates are per second, None at the first reading and after a reset; ages are in inserts.

    Each history has the rates of the last readings, the newest last.
    """

    figures: TableFigures
    inserts_per_s: float | None = None
    samples_per_s: float | None = None
    age_p50: float | None = None
    inserts_history: Sequence[float | None] = ()
    samples_history: Sequence[float | None] = ()

    @property
    def key(self) -> str:
        """The identity of the row from reading to reading."""
        return self.figures.name

    @property
    def label(self) -> str:
        """The text that a search looks at."""
        return self.figures.name

    @property
    def info(self) -> dict[str, Any]:
        """As in client.stats(); empty if there are no figures."""
        return self.figures.info

    @property
    def fill(self) -> float:
        """How full the table is, from 0 to 1."""
        return float(self.info["size"] / self.info["max_size"])

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the difference; infinite if there is none."""
        return readable_bound(self.info["min_diff"]), readable_bound(self.info["max_diff"])

    @property
    def target(self) -> float | None:
        """The ratio that the rate limiter keeps; None if it has no bounds and keeps none."""
        low, high = self.bounds
        return None if low == -high == -float("inf") else float(self.info["samples_per_insert"])

    @property
    def ratio(self) -> float | None:
        """The ratio reached; None before the first insert."""
        return ratio_reached(self.info)


@dataclass(frozen=True)
class ClientRow:
    """An attached process. Rates are per second, None at the first reading."""

    figures: ProcessFigures
    inserts_per_s: float | None = None
    samples_per_s: float | None = None
    updates_per_s: float | None = None

    @property
    def key(self) -> tuple[int, int]:
        """The identity of the row from reading to reading."""
        return self.figures.pid, self.figures.start_time

    @property
    def label(self) -> str:
        """The text that a search looks at."""
        return f"{self.figures.pid} {self.figures.name} {self.figures.role}"


@dataclass(frozen=True)
class Snapshot:
    """All rows at one moment of time.monotonic()."""

    at_s: float
    figures: Figures
    tables: list[TableRow] = field(default_factory=list)
    clients: list[ClientRow] = field(default_factory=list)


class Rates:
    """Turns successive results of client.stats() into snapshots."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._ages: dict[str, float | None] = {}  # from the last reading with histograms
        self._histories: dict[str, tuple[History, History]] = {}  # of inserts and samples per second

    def take(self, stats: Mapping[str, Any], at_s: float) -> Snapshot:
        """Returns a snapshot, with rates since the one before."""
        figures, last = Figures.read(stats), self._last
        if last is not None and last.figures.daemon["pid"] != figures.daemon["pid"]:
            last = None  # another daemon
        seconds = at_s - last.at_s if last is not None else 0.0
        tables = {row.key: row.info for row in last.tables} if last is not None else {}
        processes = {row.key: row.figures for row in last.clients} if last is not None else {}
        for table in figures.tables:
            if "ages" in table.info:
                self._ages[table.name] = median(table.info["ages"])

        def table_row(table: TableFigures) -> TableRow:
            before = tables.get(table.name, {})
            inserts, samples = (
                _rate(before.get(figure), table.info.get(figure), seconds) for figure in ("inserts", "samples")
            )
            history = self._histories.setdefault(
                table.name, (History(maxlen=NUM_READINGS), History(maxlen=NUM_READINGS))
            )
            for kept, rate in zip(history, (inserts, samples), strict=True):
                kept.append(rate)
            return TableRow(table, inserts, samples, self._ages.get(table.name), *map(tuple, history))

        def client_row(process: ProcessFigures) -> ClientRow:
            before = processes.get((process.pid, process.start_time))
            names = ("inserts", "samples", "updates")
            rates = [_rate(getattr(before, each, None), getattr(process, each), seconds) for each in names]
            return ClientRow(process, *rates)

        names = {table.name for table in figures.tables}
        self._histories = {name: history for name, history in self._histories.items() if name in names}
        self._last = Snapshot(
            at_s, figures, list(map(table_row, figures.tables)), list(map(client_row, figures.processes))
        )
        return self._last


def median(histogram: Mapping[str, Any]) -> float | None:
    """The median of a histogram, as exactly as its edges allow. None if it is empty."""
    edges, counts = histogram["edges"], histogram["counts"]
    half, below = sum(counts) / 2, 0.0
    if half == 0:
        return None
    for number, count in enumerate(counts):
        if below + count >= half:
            low = edges[number - 1] if number > 0 else min(0.0, edges[0])
            if number == len(edges):
                return float(edges[-1])
            return float(low + (edges[number] - low) * (half - below) / count)
        below += count
    return float(edges[-1])


def _rate(before: float | None, now: float | None, seconds: float) -> float | None:
    if before is None or now is None or seconds <= 0 or now < before:
        return None
    return (now - before) / seconds
