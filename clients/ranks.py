"""Ranks: the seed and the part of the table of each of several learners on one host."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmreplay.base.checks import check_int

_MAX_WORLD = 2**16
_RANKS = (0,)  # the seeds of forked children are spawned with numbers from 1 on


def check_rank(where: str, part: Any) -> tuple[int, int]:
    """Returns a learner's `(rank, world_size)`.

    Raises:
        TypeError: `part` is not a pair of integers.
        ValueError: one of them is out of range.
    """
    text = f"{where}: part is {part!r}; expected (rank, world_size)"
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        raise TypeError(text)
    if any(isinstance(number, bool) or not isinstance(number, (int, np.integer)) for number in part):
        raise TypeError(f"{text} as integers")
    rank, world_size = map(int, part)
    if not 1 <= world_size <= _MAX_WORLD:
        raise ValueError(f"{text} with world_size from 1 to {_MAX_WORLD}")
    if not 0 <= rank < world_size:
        raise ValueError(f"{text} with rank from 0 to {world_size - 1}")
    return rank, world_size


def rank_of(where: str, rank: int | None, world_size: int) -> int:
    """Returns the rank of one of `world_size` learners. None is possible for a single learner, and gives 0.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: an argument is out of range, or the rank is missing although there are several learners, which would
            then all draw the same.
    """
    world_size = check_int(where, "world_size", world_size, 1, _MAX_WORLD)
    if rank is None and world_size > 1:
        raise ValueError(
            f"{where}: world_size is {world_size} and rank is missing; give each learner its own, 0 to {world_size - 1}"
        )
    rank = check_int(where, "rank", 0 if rank is None else rank, 0)
    if rank >= world_size:
        raise ValueError(f"{where}: rank is {rank} and world_size is {world_size}; expected a rank below world_size")
    return rank


def seed_of_rank(seed: Any, rank: int) -> np.random.SeedSequence | None:
    """Returns the seed of one learner, for `client.table` and `table.sampler`; None if `seed` is None.

    The random numbers of different ranks are independent. The same seed and rank give the same numbers in every run.

    Args:
        seed: the common seed of all learners: an int, a sequence of ints or a `numpy.random.SeedSequence`.
        rank: number of this learner.
    """
    if seed is None:
        return None
    whole = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return np.random.SeedSequence(whole.entropy, spawn_key=(*whole.spawn_key, *_RANKS, rank), pool_size=whole.pool_size)


def options_of_rank(where: str, rank: int, world_size: int, disjoint: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of `sample` for one of several learners. With `disjoint`, no two can draw the same item.

    Raises:
        ValueError: the options contradict `disjoint`.
    """
    if not disjoint:
        return options
    part = (rank, world_size)
    if options.get("replacement", False) or options.get("part", part) != part:
        raise ValueError(f"{where}: disjoint=True says replacement=False and part={part}; leave these options out")
    return {**options, "replacement": False, "part": part}
