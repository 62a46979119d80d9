"""Shards: a table in several arenas, each with its own lock, so that writers wait less for each other.

A table with `shards=k` consists of k tables under one name: `replay~0` to `replay~k-1`, each in its own arena, with its
part of the size, the streams and the rate limiter. The parts are whole numbers that add up to the whole, and so do the
parts of the limiter's bounds. So if every shard keeps its limits, the whole table keeps its limits.
"""

from __future__ import annotations

import math

from shmreplay import rate_limiters

MAX_SHARDS = 128  # a key has 7 bits for it
KEY_SHIFT = 56
_SEPARATOR = "~"  # not allowed in the names of tables


def shard_name(table: str, number: int) -> str:
    """The name of a shard's table and arena."""
    return f"{table}{_SEPARATOR}{number}"


def whole_name(name: str) -> str:
    """The name of the whole table of a shard; any other name is returned unchanged."""
    return name.partition(_SEPARATOR)[0]


def part_of(total: int, shards: int, number: int) -> int:
    """The part of `total` for shard `number`. The parts add up to `total` and differ by at most 1."""
    return total // shards + (1 if number < total % shards else 0)


def limiter_part(limiter: rate_limiters.RateLimiter, shards: int, number: int) -> rate_limiters.RateLimiter:
    """The rate limiter of one shard. The bounds of all shards add up to those of `limiter`.

    `min_size_to_sample` is divided, with at least 1 a shard. Each bound has a distance from the difference at which
    sampling starts; the shard gets the k-th part of that distance.
    """
    size = max(1, part_of(limiter.min_size_to_sample, shards, number))
    if isinstance(limiter, rate_limiters.MinSize):
        return rate_limiters.MinSize(size)
    ratio, start = limiter.samples_per_insert, limiter.min_size_to_sample * limiter.samples_per_insert
    low, high = (
        bound if math.isinf(bound) else size * ratio + (bound - start) / shards
        for bound in map(rate_limiters.readable_bound, (limiter.min_diff, limiter.max_diff))
    )
    return rate_limiters.RateLimiter(ratio, size, low, high)


def check_limiter_parts(where: str, limiter: rate_limiters.RateLimiter, shards: int) -> None:
    """Raises ValueError if the rate limiter cannot be divided among so many shards."""
    if limiter.count_deletes:
        raise ValueError(
            f"{where}: rate_limiter is {limiter!r} with shards={shards}; a queue or stack has one order of all its "
            "items: leave shards out"
        )
    low, high = (rate_limiters.readable_bound(bound) for bound in (limiter.min_diff, limiter.max_diff))
    if math.isinf(low) and math.isinf(high):
        return
    if limiter.min_size_to_sample < shards:
        raise ValueError(
            f"{where}: min_size_to_sample is {limiter.min_size_to_sample} with shards={shards}; expected at least one "
            "a shard where the difference has bounds"
        )
    width = 2 * max(1.0, limiter.samples_per_insert)
    if (high - low) / shards < width:
        raise ValueError(
            f"{where}: rate_limiter leaves differences in {(low, high)}, which is {(high - low) / shards:g} for each "
            f"of {shards} shards; expected at least {width:g} each (2 * max(1, samples_per_insert)), or inserts and "
            "samples would stop each other: widen error_buffer, or take fewer shards"
        )
