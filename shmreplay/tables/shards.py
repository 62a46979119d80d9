"""Shards: one table in several arenas, each with a lock of its own, so that writers stand in each other's way less.

A table with `shards=k` is k tables behind one name: `replay~0` to `replay~k-1`, each in an arena of its own, with its
part of the size, of the streams and of the rate limiter. Parts are whole numbers that add up; the limiter's bounds are
divided so that they add up as well. So whatever every shard keeps to by itself, all of them together keep to.
"""

from __future__ import annotations

import math

from shmreplay import rate_limiters

MAX_SHARDS = 128  # a key has 7 bits for it
KEY_SHIFT = 56
_SEPARATOR = "~"  # no table's own name has it


def shard_name(table: str, number: int) -> str:
    """The name of a shard, of its table and of its arena."""
    return f"{table}{_SEPARATOR}{number}"


def whole_name(name: str) -> str:
    """The name of the table that a shard belongs to; that of any other table is its own."""
    return name.partition(_SEPARATOR)[0]


def part_of(total: int, shards: int, number: int) -> int:
    """The part of shard `number` of a whole number: the parts add up to it, and differ by one at most."""
    return total // shards + (1 if number < total % shards else 0)


def limiter_part(limiter: rate_limiters.RateLimiter, shards: int, number: int) -> rate_limiters.RateLimiter:
    """The rate limiter of one shard. The bounds of all shards add up to the limiter's.

    `min_size_to_sample` is divided, but for at least 1 a shard; a bound is as far from the difference at that size as
    the k-th part of what it was.
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
    """Raises ValueError for a rate limiter that cannot be divided among so many shards."""
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
