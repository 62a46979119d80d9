"""Histograms of a table's items: ages, times sampled and priorities, read without the lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core

MAX_ITEMS = 65_536  # items read at most, which takes a few milliseconds
TIMES_SAMPLED_EDGES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PRIORITY_EDGES = (0.0, *(float(f"{digit}e{power}") for power in range(-6, 7) for digit in (1, 2, 5)))


def item_figures(table: _core.Table) -> dict[str, Any]:
    """Figures of the live items of a native table.

    Returns:
        `min_priority` (the smallest positive one), `max_priority` and `sum_priority` of all items, and the histograms
        `ages` (inserts since the item's own), `times_sampled` and `priorities`. Each histogram has `edges`; `counts`,
        the items above the previous edge and up to this one, and at the end those above all edges; `sum` of the values;
        and `of`, how many items were read. For tables larger than MAX_ITEMS, counts and sums are scaled up.
    """
    low, high, total = table.priority_stats()
    _, ages, times, priorities, stride = table.survey(MAX_ITEMS)
    size = len(ages) if stride == 1 else table.size
    return {
        "min_priority": low,
        "max_priority": high,
        "sum_priority": total,
        "ages": histogram(ages, age_edges(int(table.info()["max_size"])), size),
        "times_sampled": histogram(times, TIMES_SAMPLED_EDGES, size),
        "priorities": histogram(priorities, PRIORITY_EDGES, size),
    }


def age_edges(max_size: int) -> list[int]:
    """0, 1, 2, 5, 10 ... up to ten times the table's size or more; constant for the life of the table."""
    edges = [0]
    power = 1
    while edges[-1] < 10 * max_size:
        edges += [power, 2 * power, 5 * power]
        power *= 10
    return edges


def histogram(values: NDArray[Any], edges: Sequence[float], size: int) -> dict[str, Any]:
    """Counts of `values` by edges, scaled up to `size` items."""
    found = np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)
    scale = size / len(values) if len(values) > 0 else 1.0
    reached = np.rint(np.cumsum(found) * scale).astype(np.int64)
    return {
        "edges": list(edges),
        "counts": np.diff(reached, prepend=0).tolist(),
        "sum": float(values.sum(dtype=np.float64) * scale),
        "of": len(values),
    }
