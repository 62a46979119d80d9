"""Randomness: the random numbers of a handle, repeatable with a seed and different in every forked child."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

# How this process descends from the first one: for each fork on the way, its number among its parent's forks.
_lineage: tuple[int, ...] = ()
_forks_made = 0


def _before_fork() -> None:
    global _forks_made
    _forks_made += 1


def _after_fork_in_child() -> None:
    global _lineage, _forks_made
    _lineage = (*_lineage, _forks_made)
    _forks_made = 0


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


class Randomness:
    """A numpy Generator that draws other numbers after a fork: from a new seed, or from a child of the given seed."""

    def __init__(self, seed: Any = None) -> None:
        if isinstance(seed, np.random.SeedSequence):
            self._seed: np.random.SeedSequence | None = seed
        else:
            self._seed = None if seed is None else np.random.SeedSequence(seed)
        self._lineage = _lineage
        self._generator = self._make(())

    def uniforms(self, n: int) -> NDArray[np.float64]:
        """Returns n numbers in [0, 1)."""
        if self._lineage != _lineage:
            self._generator = self._make(_lineage[len(self._lineage) :])
            self._lineage = _lineage
        return self._generator.random(n)

    def _make(self, forks: tuple[int, ...]) -> np.random.Generator:
        if self._seed is None:
            return np.random.default_rng()
        seed = self._seed
        if forks:
            self._seed = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *forks))
            seed = self._seed
        return np.random.default_rng(seed)
