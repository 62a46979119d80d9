"""What a table's items are like: their ages, samples and priorities as histograms, from a look without the lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core

MAX_ITEMS = 65_536  # that are looked at: a few milliseconds
TIMES_SAMPLED_EDGES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PRIORITY_EDGES = (0.0, *(float(f"{digit}e{power}") for power in range(-6, 7) for digit in (1, 2, 5)))


def item_figures(table: _core.Table) -> dict[str, Any]:
    """Figures of the live items of a native table.

    Returns:
        `min_priority` (the smallest positive one), `max_priority` and `sum_priority` of all items, and the histograms
        `ages` (inserts since the item's own), `times_sampled` and `priorities`: each of `edges`; `counts`, of the
        items up to the edge and beyond the one before, and last of those beyond all edges; `sum` of the values; and
        `of`, how many items were looked at. Of larger tables than MAX_ITEMS they are scaled up from so many.
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
    """The same as long as the table lives: 0, 1, 2, 5, 10 ... up to what is beyond ten times its size."""
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
