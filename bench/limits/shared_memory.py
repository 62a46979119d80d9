"""Memory of the kind that the library's segments are made of: shared, of the kernel's tmpfs, without a name."""

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def fresh(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros in new shared memory: no page of it is there before it is touched. Unmapped with the array."""
    n = int(np.prod(shape))
    memory = mmap.mmap(-1, n * np.dtype(dtype).itemsize)  # anonymous and MAP_SHARED
    return np.frombuffer(memory, dtype, n).reshape(shape)


def warm(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """The same with every page there and mapped."""
    array = fresh(shape, dtype)
    array[...] = 0
    return array


class Addresses:
    """Where arrays lie, for C: `pointers` is a `char* const*`. Keeps the arrays."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self.arrays = arrays
        self.pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
