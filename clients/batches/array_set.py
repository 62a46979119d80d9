"""ArraySet: the arrays of one batch, which are written to again when nobody holds them."""

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
    """The array whose memory it shows: whoever holds that array, or a view or a tensor of it, refers to this one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def num_references(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """By array, how many references there are."""
    return [sys.getrefcount(array) for array in arrays]


# What num_references() says of an array that its list alone refers to: counted the same way, whatever the interpreter
# holds meanwhile.
ALONE = num_references([np.empty(0)])[0]


class ArraySet:
    """The arrays that a batch was written into; with `at_borders` new ones for those that begin at none of 64 bytes."""

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
        """New arrays like these, at borders of 64 bytes."""
        other = copy.copy(self)
        other._arrays = [aligned_empty(array.shape, array.dtype) for array in self._arrays]
        return other

    def is_free(self) -> bool:
        """Whether nobody else refers to any of them."""
        return all(count == ALONE for count in num_references(self._arrays))

    @property
    def out(self) -> Any:
        """What `sample(out=)` takes."""
        arrays = iter(self._arrays)
        return self._build([next(arrays) if has_array else None for has_array in self._has_array])
