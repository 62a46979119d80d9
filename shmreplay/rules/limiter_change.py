"""Changes the ratio of a table's rate limiter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shmreplay.base.checks import check_float, check_int
from shmreplay.rate_limiters import RateLimiter, SampleToInsertRatio, readable_bound


def changed_limiter(
    info: Mapping[str, Any], ratio: float, min_size: int | None = None, error_buffer: float | None = None
) -> RateLimiter:
    """Returns the limiter of the table of `info`, with the given changes.

    Without an `error_buffer`, each bound keeps its distance from the difference at which sampling starts, but at least
    the distance that the ratio needs. A missing bound stays missing.

    Raises:
        TypeError: a change is not a number.
        ValueError: a number is out of range, the table is a queue or stack, or there are no bounds.
    """
    where = f"table {info['name']!r}"
    if info["count_deletes"]:
        raise ValueError(f"{where}: it is a queue or stack, whose items are sampled once; it has no other ratio")
    ratio = check_float(where, "the ratio", ratio)
    if not 0 < ratio < math.inf:
        raise ValueError(f"{where}: the ratio is {ratio}; expected a finite number > 0")
    size = info["min_size_to_sample"] if min_size is None else check_int(where, "min_size_to_sample", min_size, 1)
    if error_buffer is not None:
        return SampleToInsertRatio(ratio, size, error_buffer)
    low, high = readable_bound(info["min_diff"]), readable_bound(info["max_diff"])
    if math.isinf(low) and math.isinf(high):
        raise ValueError(
            f"{where}: its rate limiter has no bounds, so it keeps no ratio; give an error buffer: by how many samples "
            "the ratio may be off"
        )
    start, needed = info["min_size_to_sample"] * info["samples_per_insert"], max(1.0, ratio)
    bounds = size * ratio - max(start - low, needed), size * ratio + max(high - start, needed)
    return SampleToInsertRatio(ratio, size, bounds)


def whole_limiter(table: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The limiter's numbers of a whole table. `parts` are the `info()` of its shards, or its own if it has none."""
    summed = ("min_size_to_sample", "min_diff", "max_diff")  # each shard has a part; the parts add up
    numbers = {name: sum(part[name] for part in parts) for name in summed}
    kept = {name: parts[0][name] for name in ("samples_per_insert", "count_deletes")}
    return {"name": table, **kept, **numbers}
