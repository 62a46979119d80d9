"""Ranks: several learners on one table, each with a part of the draws and random numbers of its own."""

from __future__ import annotations

from typing import Any

import numpy as np


def rank_seed(seed: Any, *number: int) -> Any:
    """A seed of its own for each number below the seed; None stays none, which differs by itself."""
    if seed is None:
        return None
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(seed)
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *number))
