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
    """Counters of a table, read without its lock: they may be a few operations apart.

    Attributes:
        name: the table's name.
        size: number of items now.
        max_size: largest number of items.
        capacity_steps: how many steps the arena has room for, for all tables that share it.
        sampler, remover: as created, except that the sampler has the current priority exponent.
        max_times_sampled: an item is removed after this many samples; 0: never.
        inserts, samples, deletes: since creation or reset, as the rate limiter counts them; size = inserts - deletes.
        uncounted: inserts that do not count for the difference: those of `extend(count=False)`.
        num_episodes: number of episodes that have live items.
        num_deleted_episodes: number of episodes whose last item was removed.
        num_unique_samples: number of items that were sampled at least once.
        evicted: items that the remover removed, because the table was over max_size or the arena had no room.
        evicted_for_room: those of them that were removed because the arena had no free chunk or blocks.
        samples_per_insert, min_size_to_sample, min_diff, max_diff: the rate limiter now. Where there is no bound, it is
            infinite.
        difference: (inserts - uncounted) * samples_per_insert - samples, plus what a rebase added. The rate limiter
            keeps it within the bounds.
        paused_inserts, paused_samples: whether that side is paused.
        blocked_inserts, blocked_samples: calls that wait now.
        blocked_inserts_total, blocked_samples_total: calls that had to wait.
        blocked_inserts_s, blocked_samples_s: seconds that these calls waited, all together.
        last_insert_s_ago, last_sample_s_ago: seconds, good to a few milliseconds; None: never.
        views: number of calls of `view`, since creation or restore.
        contiguous_views: number of those views whose `data` lies entirely in the shared memory itself.
        bytes: size of the chunks that hold steps and of the blocks in use, of all tables of the arena.
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
        """Reads the counters of a native table. Raises SegmentFailed if they are impossible: its memory is damaged."""
        found = table.info()
        low, high, total = table.priority_stats()
        found.update(min_priority=low, max_priority=high, sum_priority=total)
        found = readable_info(found)
        return cls(**{f.name: found[f.name] for f in fields(cls)})


def readable_info(found: Mapping[str, Any]) -> dict[str, Any]:
    """The core's info of a table, with selectors in place of their numbers, and missing bounds as infinite.

    Empty if the core's info is.

    Raises:
        SegmentFailed: the info is impossible.
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
