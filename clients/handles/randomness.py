"""Randomness: the random numbers of a handle, repeatable with a seed and different in every process."""

from __future__ import annotations

import os
from itertools import count
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


PICKLES = 2**32 - 1  # before the number of a pickle in a spawn key: neither a fork's number nor that of ranks

os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


class Randomness:
    """A numpy Generator that draws other numbers after a fork: from a new seed, or from a child of the given seed.

    Args:
        seed: an int, a sequence of ints, a SeedSequence, or a Generator, which is used itself in this process. None: a
            new seed.
    """

    def __init__(self, seed: Any = None) -> None:
        self._seed = _sequence(seed)
        self._lineage = _lineage
        self._pickles = count(1)
        self._generator = seed if isinstance(seed, np.random.Generator) else self._make(())

    def uniforms(self, n: int) -> NDArray[np.float64]:
        """Returns n numbers in [0, 1)."""
        self._follow_forks()
        return self._generator.random(n)

    def for_pickle(self) -> np.random.SeedSequence | None:
        """Returns the seed for the next copy of the handle in another process: a child of this one's, if it has one."""
        self._follow_forks()
        return None if self._seed is None else _child(self._seed, (PICKLES, next(self._pickles)))

    def seeds(self, n: int) -> list[np.random.SeedSequence | None]:
        """Returns seeds for n others, which are repeatable if this one is."""
        return [None] * n if self._seed is None else [*self._seed.spawn(n)]

    def _follow_forks(self) -> None:
        if self._lineage != _lineage:
            self._generator = self._make(_lineage[len(self._lineage) :])
            self._lineage = _lineage

    def _make(self, forks: tuple[int, ...]) -> np.random.Generator:
        if self._seed is None:
            return np.random.default_rng()
        if forks:
            self._seed = _child(self._seed, forks)
        return np.random.default_rng(self._seed)


def _sequence(seed: Any) -> np.random.SeedSequence | None:
    """What the seeds of others come from; None: they are new ones."""
    if isinstance(seed, np.random.Generator):
        seed = seed.bit_generator.seed_seq
        return seed if isinstance(seed, np.random.SeedSequence) else None  # one made from a state alone has none
    if seed is None or isinstance(seed, np.random.SeedSequence):
        return seed
    return np.random.SeedSequence(seed)


def _child(seed: np.random.SeedSequence, key: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *key))
