"""Aligned arrays: they begin at multiples of 64 bytes, own their memory, and have the copied values."""

import ml_dtypes
import numpy as np
import pytest

from shmreplay.clients.batches.aligned import aligned_copy, aligned_empty, is_aligned


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.complex128, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (5, 3, 2)])
def test_new_arrays_begin_at_a_border(shape: tuple[int, ...], dtype: type) -> None:
    array = aligned_empty(shape, np.dtype(dtype))
    assert is_aligned(array)
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    array[...] = 1  # all of it may be written
    assert not isinstance(array.base, np.ndarray), "no array besides this one refers to its memory"


def test_an_array_off_the_border_is_seen() -> None:
    array = aligned_empty((65,), np.dtype(np.uint8))
    assert not is_aligned(array[1:])
    assert is_aligned(array[64:])


def test_a_copy_has_the_values_and_the_dtype_asked_for() -> None:
    source = np.arange(24, dtype=np.int64).reshape(4, 6)[::2, ::-1]
    copy = aligned_copy(source)
    assert is_aligned(copy)
    np.testing.assert_array_equal(copy, source)
    halved = aligned_copy(source, np.dtype(np.float32))
    assert halved.dtype == np.float32
    np.testing.assert_array_equal(halved, source.astype(np.float32))
    source[...] = 0
    assert copy.any(), "it is no view"
