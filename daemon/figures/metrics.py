"""The daemon's figures as Prometheus metrics. Like `stats`, they are read without a lock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from shmreplay.rate_limiters import ratio_reached

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One metric.

    Attributes:
        name: its name after `shmreplay_table_`, `shmreplay_arena_` or `shmreplay_daemon_`.
        figure: name of the figure in `stats`.
        help: its description.
        counts: it is a counter, which only grows until a reset; its name then gets the ending `_total`.
        side: value of the label `side`, for metrics that exist for inserts and for samples.
    """

    name: str
    figure: str
    help: str
    counts: bool = False
    side: str | None = None


def _sides(name: str, figure: str, help: str, counts: bool = False) -> tuple[Row, Row]:
    inserts, samples = (
        Row(name, figure.format(side), help, counts, side.removesuffix("s")) for side in ("inserts", "samples")
    )
    return inserts, samples


TABLE = (
    Row("size", "size", "items now"),
    Row("max_size", "max_size", "items at most"),
    Row("inserts", "inserts", "items inserted", True),
    Row("samples", "samples", "items sampled", True),
    Row("deletes", "deletes", "items deleted", True),
    Row("evicted", "evicted", "items that the remover deleted, and items deleted to free chunks", True),
    Row("evicted_for_room", "evicted_for_room", "items deleted because the arena had no free chunk", True),
    Row("episodes", "num_episodes", "distinct episodes of live items"),
    Row("sampled_items", "num_unique_samples", "items that were sampled at least once, deleted ones included"),
    Row("samples_per_insert_target", "samples_per_insert", "the ratio that the rate limiter keeps"),
    Row("samples_per_insert", "reached", "samples / inserts, as the rate limiter counts; 0 before the first insert"),
    Row("difference", "difference", "inserts x target - samples, which the rate limiter keeps within its bounds"),
    Row("difference_min", "min_diff", "sampling waits below it"),
    Row("difference_max", "max_diff", "inserting waits above it"),
    Row("min_size_to_sample", "min_size_to_sample", "sampling waits until the table has this many items"),
    *_sides("blocked", "blocked_{}", "callers waiting now"),
    *_sides("blocked_calls", "blocked_{}_total", "calls that had to wait", True),
    *_sides("blocked_seconds", "blocked_{}_s", "seconds that all callers together have waited", True),
    *_sides("paused", "paused_{}", "1 if a client has paused it"),
    Row("writers", "writers", "attached processes that have inserted into it"),
    Row("learners", "learners", "attached processes that have sampled from it"),
    Row("writers_gone", "writers_gone", "1 if processes have inserted into it and all of them are gone"),
    Row("learners_gone", "learners_gone", "1 if processes have sampled from it and all of them are gone"),
    *_sides(
        "longest_wait_seconds", "longest_{}_wait_s", "how long the longest current wait has lasted; 0: nobody waits"
    ),
    Row("priority_min", "min_priority", "smallest positive priority of an item; 0: none"),
    Row("priority_max", "max_priority", "largest priority of an item; 0: none"),
    Row("priority_sum", "sum_priority", "sum of the priorities of its items"),
    Row("last_seconds", "last_insert_s_ago", "seconds since the last one; absent before the first", side="insert"),
    Row("last_seconds", "last_sample_s_ago", "seconds since the last one; absent before the first", side="sample"),
)
ARENA = (
    Row("index_bytes", "index_bytes", "shared memory of the index segment"),
    Row("data_bytes", "data_bytes", "shared memory of the data segment"),
    Row("huge_bytes", "huge_bytes", "shared memory of both segments that is in huge pages"),
    Row("chunks", "num_chunks", "chunks in all"),
    Row("free_chunks", "free_chunks", "chunks that nobody uses"),
    Row("used_chunks", "used_chunks", "chunks that items or open streams refer to"),
    Row("retired_chunks", "retired_chunks", "chunks that nothing refers to but a reader may still read"),
    Row("pinned_chunks", "pinned_chunks", "chunks kept by reads in flight and views"),
    Row(
        "oldest_lease_seconds",
        "oldest_lease_s",
        "age of the oldest of these reads and views; absent if there is none",
    ),
    Row("blocks", "num_blocks", "blocks of the heap in all"),
    Row("free_blocks", "free_blocks", "blocks of the heap that nobody uses"),
    Row("sessions", "num_sessions", "attached processes"),
    Row("holds", "holds", "holds of the arena's lock", True),
    Row("lock_waits", "lock_waits", "holds that had to wait for the lock", True),
    Row("lock_wait_seconds", "lock_wait_s", "seconds that all holds together waited for the lock", True),
    Row("rebuilds", "rebuilds", "times that derived data was rebuilt; a restore does it once", True),
    Row("recoveries", "recoveries", "holds of dead processes that were rolled back", True),
    Row("failed", "failed", "1 if the arena is damaged or truncated"),
    Row("unlinked", "is_unlinked", "1 if the name of a segment was removed: the next daemon will not find it"),
)
PROCESSES = (Row("processes", "processes", "attached processes, by what they have done since they attached"),)
ROLES = ("writer", "learner", "both", "idle")
DAEMON = (
    Row("uptime_seconds", "uptime_s", "seconds since its start"),
    Row("clients", "clients", "connected clients"),
    Row("processes", "processes", "processes watched until they end"),
    Row("deaths", "deaths", "processes that ended while attached", True),
    Row(
        "checkpoint_age_seconds",
        "saved_s_ago",
        "seconds since the last checkpoint, saved or found up to date; absent before",
    ),
    Row("checkpoint_duration_seconds", "seconds", "how long that took"),
    Row("checkpoint_bytes", "bytes", "size of the last checkpoint"),
    Row("checkpoint_failed", "checkpoint_failed", "1 if the last attempt to save a checkpoint failed"),
)


class Snapshot(Collector):
    """The metrics of one answer to `stats`, including those of items if it has them."""

    def __init__(self, stats: Figures) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Yields one family for each metric."""
        daemon = self._stats["daemon"]
        about = {"version": daemon["version"], "instance": daemon["instance"]}
        yield InfoMetricFamily("shmreplay_daemon", "the daemon that answers", value=about)
        saved = daemon["checkpoint"] or {}
        failed = {"checkpoint_failed": saved.get("error") is not None}
        yield from _families("daemon", DAEMON, {(): {**saved, **daemon, **failed}}, ())
        arenas = self._stats["arenas"]
        yield from _families("arena", ARENA, {(name,): _of_arena(found) for name, found in arenas.items()}, ("arena",))
        yield from _families("arena", PROCESSES, _by_role(arenas), ("arena", "role"))
        tables: dict[tuple[str, ...], Figures] = {
            (table, arena): _of_table(info, found["waits"])
            for arena, found in arenas.items()
            for table, info in found["tables"].items()
            if info
        }
        yield from _families("table", TABLE, tables, ("table", "arena"))
        yield _ages(tables)


def _of_arena(found: Figures) -> Figures:
    stats = found.get("stats", {})
    return {**found, **stats, "failed": found["failure"] is not None or stats.get("failed", False)}


def _by_role(arenas: Mapping[str, Figures]) -> dict[tuple[str, ...], Figures]:
    found: dict[tuple[str, ...], Figures] = {}
    for name, arena in arenas.items():
        counts = Counter(session["role"] for session in arena.get("sessions", ()))
        found |= {(name, role): {"processes": counts[role]} for role in ROLES}
    return found


def _of_table(info: Figures, waits: Iterable[Figures]) -> Figures:
    longest = {"insert": 0.0, "sample": 0.0}
    for wait in waits:
        if wait["table"] == info["name"]:
            longest[wait["side"]] = max(longest[wait["side"]], wait["since_s"])
    return {
        **info,
        "reached": ratio_reached(info) or 0.0,
        "longest_inserts_wait_s": longest["insert"],
        "longest_samples_wait_s": longest["sample"],
    }


def _ages(tables: Mapping[tuple[str, ...], Figures]) -> Metric:
    """A histogram of the ages of the items that are in each table now."""
    text = "items by age: the number of inserts since the item's own"
    family = GaugeHistogramMetricFamily("shmreplay_table_age", text, labels=("table", "arena"))
    for values, figures in tables.items():
        if (found := figures.get("ages")) is not None:
            counts = list(accumulate(found["counts"]))
            edges = [*map(str, map(float, found["edges"])), "+Inf"]
            family.add_metric(values, list(zip(edges, counts, strict=True)), found["sum"])
    return family


def _families(
    kind: str, rows: tuple[Row, ...], found: Mapping[tuple[str, ...], Figures], labels: tuple[str, ...]
) -> Iterator[Metric]:
    """Yields the families of one kind. `found` has the figures of each object by its label values."""
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    for row in rows:
        family = families.get(row.name)
        if family is None:
            make = CounterMetricFamily if row.counts else GaugeMetricFamily
            names = labels if row.side is None else (*labels, "side")
            family = families[row.name] = make(f"shmreplay_{kind}_{row.name}", row.help, labels=names)
        for values, figures in found.items():
            figure = figures.get(row.figure)
            if figure is not None and not math.isnan(figure):
                family.add_metric(values if row.side is None else (*values, row.side), float(figure))
    yield from families.values()
