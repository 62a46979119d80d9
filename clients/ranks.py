"""Ranks: what several learners on one host have each of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmreplay.base.checks import check_int

_MAX_WORLD = 2**16
_RANKS = (0,)  # forks, which spawn seeds too, count from 1


def check_rank(where: str, part: Any) -> tuple[int, int]:
    """Returns a learner's `(rank, world_size)`.

    Raises:
        TypeError: it is no pair of integers.
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
    """Returns a learner's own number among so many; of one alone it may be left out.

    Raises:
        TypeError: one of them is no integer.
        ValueError: one is out of range, or the rank of one of several is missing: all of them would draw alike.
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
    """The seed of one learner's random numbers, for `client.table` and `table.sampler`; None for None.

    Those of other ranks are independent of them; the same seed and rank give the same ones in every run.

    Args:
        seed: of all learners together: an int, a sequence of them or a `numpy.random.SeedSequence`.
        rank: of this one.
    """
    if seed is None:
        return None
    whole = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return np.random.SeedSequence(whole.entropy, spawn_key=(*whole.spawn_key, *_RANKS, rank), pool_size=whole.pool_size)


def options_of_rank(where: str, rank: int, world_size: int, disjoint: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Options of `sample` for one of so many learners; `disjoint`: none draws what another one could.

    Raises:
        ValueError: the options contradict `disjoint`.
    """
    if not disjoint:
        return options
    part = (rank, world_size)
    if options.get("replacement", False) or options.get("part", part) != part:
        raise ValueError(f"{where}: disjoint=True says replacement=False and part={part}; leave these options out")
    return {**options, "replacement": False, "part": part}
