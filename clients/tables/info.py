"""TableInfo: what `table.info()` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from shmreplay import _core, selectors
from shmreplay.errors import SegmentFailed
from shmreplay.rate_limiters import readable_bound
from shmreplay.selectors import Selector


@dataclass(frozen=True)
class TableInfo:
    """Counters of a table at one moment, read without its lock: they may be a few operations apart.

    Attributes:
        name: the table's.
        size: items now.
        max_size: items at most.
        capacity_steps: steps that the arena has room for, of all tables that share it.
        sampler, remover: as created, but for the sampler's priority exponent, which is the one now.
        max_times_sampled: samples after which an item goes; 0: any number.
        inserts, samples, deletes: since creation or reset, as the rate limiter counts them; size = inserts - deletes.
        uncounted: those of the inserts that the difference leaves out: `extend(count=False)`.
        num_episodes: distinct episodes that live items belong to.
        num_deleted_episodes: episodes whose last item is gone.
        num_unique_samples: items that were sampled at least once.
        evicted: items that the remover took when the table was over max_size, or that went for room.
        evicted_for_room: those of them that went because the arena had no free chunk or blocks.
        samples_per_insert, min_size_to_sample, min_diff, max_diff: the rate limiter now; a bound that
            is none is infinite.
        difference: (inserts - uncounted) * samples_per_insert - samples (+ what a rebase added), which it keeps within
            the bounds.
        paused_inserts, paused_samples: whether that side is paused.
        blocked_inserts, blocked_samples: callers waiting now.
        blocked_inserts_total, blocked_samples_total: calls that had to wait.
        blocked_inserts_s, blocked_samples_s: seconds they waited, all together.
        last_insert_s_ago, last_sample_s_ago: seconds, good to a few milliseconds; None: never.
        views: taken by `view`, since creation or restore.
        contiguous_views: those of them whose `data` is the shared memory itself, all of it.
        bytes: of the chunks that steps are in and of the blocks in use, of all tables of the arena.
        min_priority: the smallest positive priority of a live item; 0 if there is none.
        max_priority: the largest priority of a live item; 0 if there is none.
        sum_priority: sum of the live items' priorities.
    """

    name: str
    size: int
    max_size: int
    capacity_steps: int
    sampler: Selector
    remover: Selector
    max_times_sampled: int
    inserts: int
    samples: int
    deletes: int
    uncounted: int
    num_episodes: int
    num_deleted_episodes: int
    num_unique_samples: int
    evicted: int
    evicted_for_room: int
    samples_per_insert: float
    min_size_to_sample: int
    min_diff: float
    max_diff: float
    difference: float
    paused_inserts: bool
    paused_samples: bool
    blocked_inserts: int
    blocked_samples: int
    blocked_inserts_total: int
    blocked_samples_total: int
    blocked_inserts_s: float
    blocked_samples_s: float
    last_insert_s_ago: float | None
    last_sample_s_ago: float | None
    views: int
    contiguous_views: int
    bytes: int
    min_priority: float
    max_priority: float
    sum_priority: float

    @classmethod
    def read(cls, table: _core.Table) -> TableInfo:
        """Reads the counters of a native table. Raises SegmentFailed where they can not be those of any table."""
        found = table.info()
        low, high, total = table.priority_stats()
        found.update(min_priority=low, max_priority=high, sum_priority=total)
        found = readable_info(found)
        return cls(**{f.name: found[f.name] for f in fields(cls)})


def readable_info(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the core says of a table, with selectors for their numbers, and bounds that are none infinite.

    Empty for a table that nothing is said of.

    Raises:
        SegmentFailed: it can not be said of any table.
    """
    if not found:
        return {}
    info = dict(found)
    for role in ("sampler", "remover"):
        try:
            info[role] = selectors.of_kind(info[role], info.pop(f"{role}_exponent"))
        except ValueError as error:
            raise SegmentFailed(f"table {info['name']!r}: its index is damaged: {role}: {error}") from error
    for name in ("min_diff", "max_diff"):
        info[name] = readable_bound(info[name])
    return info
