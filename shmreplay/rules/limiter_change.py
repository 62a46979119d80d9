"""A rate limiter as a table has it, with another ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shmreplay.base.checks import check_float, check_int
from shmreplay.rate_limiters import RateLimiter, SampleToInsertRatio, readable_bound


def changed_limiter(
    info: Mapping[str, Any], ratio: float, min_size: int | None = None, error_buffer: float | None = None
) -> RateLimiter:
    """The limiter of the table of `info`, but for what is given.

    Without an `error_buffer` each bound stays as far from the difference at which sampling starts as it was, though at
    least as far as the ratio needs; a bound that is none stays none.

    Raises:
        TypeError: what is given is no number.
        ValueError: a number is out of range, the table is a queue or stack, or it has no bounds and none are given.
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
            f"{where}: its rate limiter has no bounds, so that no ratio is kept; give an error buffer, how many "
            "samples it may be off"
        )
    start, needed = info["min_size_to_sample"] * info["samples_per_insert"], max(1.0, ratio)
    bounds = size * ratio - max(start - low, needed), size * ratio + max(high - start, needed)
    return SampleToInsertRatio(ratio, size, bounds)


def whole_limiter(table: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The limiter's numbers of a table, of whose one shard or several `parts` is what `info()` says."""
    summed = ("min_size_to_sample", "min_diff", "max_diff")  # of each shard a part, which add up
    numbers = {name: sum(part[name] for part in parts) for name in summed}
    kept = {name: parts[0][name] for name in ("samples_per_insert", "count_deletes")}
    return {"name": table, **kept, **numbers}
