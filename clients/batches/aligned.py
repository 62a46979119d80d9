"""Arrays whose memory begins at a multiple of 64 bytes. XLA uses such memory as it is, and copies any other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64


def is_aligned(array: NDArray[Any]) -> bool:
    """Whether the array's memory begins at a multiple of 64 bytes."""
    address: int = array.__array_interface__["data"][0]
    return address % ALIGNMENT == 0


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns a new C-contiguous aligned array of undefined content; no other array owns its memory."""
    memory = bytearray(math.prod(shape) * dtype.itemsize + ALIGNMENT - 1)
    begin: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return np.ndarray(tuple(shape), dtype, buffer=memory, offset=-begin % ALIGNMENT)


def aligned_copy(array: NDArray[Any], dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Returns a C-contiguous aligned copy, converted to `dtype` if one is given."""
    copy = aligned_empty(array.shape, array.dtype if dtype is None else dtype)
    copy[...] = array
    return copy
