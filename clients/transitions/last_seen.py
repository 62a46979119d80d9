"""LastSeen: the observations that N streams ended with, to tell whether the next ones continue them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class LastSeen:
    """Copies of arrays `[N, ...]`. What it is given each time has the same dtypes and shapes."""

    def __init__(self, num: int) -> None:
        self._num = num
        self._bytes: list[bytes] = []
        self._forms: list[tuple[np.dtype[Any], tuple[int, ...]]] = []

    @property
    def rows(self) -> list[NDArray[Any]]:
        """The arrays that were kept, read-only."""
        forms = zip(self._bytes, self._forms, strict=True)
        return [np.frombuffer(data, dtype).reshape(shape) for data, (dtype, shape) in forms]

    def keep(self, arrays: Sequence[NDArray[Any]], mask: Mask | None = None) -> None:
        """Copies the arrays; with a mask, only the rows where it is True."""
        if mask is not None:
            kept = self.rows or [np.zeros_like(array) for array in arrays]
            arrays = [np.where(_beside(mask, new), new, old) for new, old in zip(arrays, kept, strict=True)]
        self._bytes = [array.tobytes() for array in arrays]
        if not self._forms:
            self._forms = [(array.dtype, array.shape) for array in arrays]

    def differs(self, arrays: Sequence[NDArray[Any]]) -> Mask | None:
        """Rows in which any byte of these arrays is another one than of those that were kept; None: there are none."""
        found = [array.tobytes() for array in arrays]  # bytes, so that NaN equals itself
        if found == self._bytes or not self._bytes:
            return None
        differs = np.zeros(self._num, np.bool_)
        for array, row in zip(arrays, self.rows, strict=True):
            differs |= (_bytes_of(array) != _bytes_of(row)).any(axis=1)
        return differs


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)


def _beside(mask: Mask, array: NDArray[Any]) -> Mask:
    """The mask with axes of size 1 at the end, so that it has as many as the array."""
    return mask.reshape(mask.shape + (1,) * (array.ndim - 1))
