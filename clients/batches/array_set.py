"""ArraySet: the arrays of one batch. A sampler writes to them again when nobody else refers to them."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.batches.aligned import aligned_empty, is_aligned
from shmreplay.clients.batches.batch import Batch
from shmreplay.columns.item_structure import unflatten_outputs


def owner_of(array: NDArray[Any]) -> NDArray[Any]:
    """The array that owns the memory of `array`. Every view and every tensor of that memory refers to the owner."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def num_references(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """How many references there are to each array."""
    return [sys.getrefcount(array) for array in arrays]


# What num_references() returns for an array that only its list refers to. Counted by the same function, because that
# includes the references that the interpreter itself holds during the call.
ALONE = num_references([np.empty(0)])[0]


class ArraySet:
    """The arrays that a batch was written into. With `at_borders`, new aligned arrays replace those not aligned."""

    def __init__(self, batch: Batch, at_borders: bool = False) -> None:
        names = batch._native.names
        # Columns of a codec come in new arrays with every batch.
        self._has_array = [isinstance(array, np.ndarray) for array in batch._native.data]
        self._arrays = [owner_of(array) for array in itertools.compress(batch._native.data, self._has_array)]
        if at_borders:
            self._arrays = [
                array if is_aligned(array) else aligned_empty(array.shape, array.dtype) for array in self._arrays
            ]
        self._build = partial(unflatten_outputs, names) if names else batch._signature.unflatten

    def another(self) -> ArraySet:
        """Returns new, aligned arrays of the same shapes and dtypes."""
        other = copy.copy(self)
        other._arrays = [aligned_empty(array.shape, array.dtype) for array in self._arrays]
        return other

    def is_free(self) -> bool:
        """Whether nobody else refers to any of the arrays."""
        return all(count == ALONE for count in num_references(self._arrays))

    @property
    def out(self) -> Any:
        """The arrays in the structure that `sample(out=)` takes."""
        arrays = iter(self._arrays)
        return self._build([next(arrays) if has_array else None for has_array in self._has_array])
