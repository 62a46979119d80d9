"""Memory of the kind that segments are made of: shared memory from the kernel's tmpfs, without a name."""

import ctypes
import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shmreplay import _core

HUGE_PAGE_BYTES = _core.HUGE_PAGE_BYTES


def fresh(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros in new shared memory. Each page is made at its first access. Unmapped with the array."""
    n = int(np.prod(shape))
    memory = mmap.mmap(-1, n * np.dtype(dtype).itemsize)  # anonymous and MAP_SHARED
    return np.frombuffer(memory, dtype, n).reshape(shape)


def warm(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """As `fresh`, but every page exists and is mapped, in huge pages if segments get them on this machine."""
    n = int(np.prod(shape))
    memory = huge(n * np.dtype(dtype).itemsize)
    array = np.frombuffer(memory, dtype, n).reshape(shape)
    array[...] = 0
    return array


def huge(num_bytes: int) -> mmap.mmap:
    """Shared memory that is in huge pages and mapped by huge pages; in small pages if there are no huge ones."""
    fd = os.memfd_create("limit")
    try:
        os.ftruncate(fd, num_bytes + 2 * HUGE_PAGE_BYTES)
        _core.take_huge_pages(fd, 0, num_bytes + 2 * HUGE_PAGE_BYTES)
        offset = 0
        for _ in range(4):  # a mapping of this length usually gets the address of the last one
            memory = mmap.mmap(fd, num_bytes, offset=offset)
            within = np.frombuffer(memory, np.uint8).ctypes.data % HUGE_PAGE_BYTES
            if within == offset:  # the kernel maps whole huge pages only if address and offset agree
                break
            offset = within
        return memory
    finally:
        os.close(fd)


class Addresses:
    """Addresses of arrays for C: `pointers` is a `char* const*`. Keeps the arrays alive."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self.arrays = arrays
        self.pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
