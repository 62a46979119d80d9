"""Trees of arrays as Minari has them: a dict or tuple of trees, or an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def of_arrays(make: Callable[..., Any], *trees: Any) -> Any:
    """`make(array, ...)` for the arrays at each place of some trees of one structure, as such a tree."""
    first = trees[0]
    if isinstance(first, dict):
        return {name: of_arrays(make, *(tree[name] for tree in trees)) for name in first}
    if isinstance(first, tuple):
        return tuple(of_arrays(make, *parts) for parts in zip(*trees, strict=True))
    return make(*trees)


def rows(tree: Any, chosen: Any) -> Any:
    """Rows of each array: a slice, or an array of numbers."""
    return of_arrays(lambda array: array[chosen], tree)


def joined(trees: Sequence[Any]) -> Any:
    """Trees one after the other, along the first axis."""
    return of_arrays(lambda *arrays: np.concatenate(arrays), *trees)
