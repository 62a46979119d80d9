"""Ranks: several learners on one table, each with a part of the draws and random numbers of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmreplay.checks import check_int


def rank_seed(seed: Any, *number: int) -> Any:
    """A seed of its own for each number below the seed; None stays none, which differs by itself."""
    if seed is None:
        return None
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(seed)
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *number))


def rank_options(where: str, rank: int, world_size: int, disjoint: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Options of `sample` for one of so many learners.

    Raises:
        TypeError, ValueError: rank or world_size is no number of learners, or the options contradict `disjoint`.
    """
    world_size = check_int(where, "world_size", world_size, 1)
    rank = check_int(where, "rank", rank, 0, world_size - 1)
    if not disjoint:
        return options
    if options.get("replacement", False):
        raise ValueError(f"{where}: disjoint=True and replacement=True exclude each other; leave replacement out")
    return {**options, "replacement": False, "part": (rank, world_size)}
