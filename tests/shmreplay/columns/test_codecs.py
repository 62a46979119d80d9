"""ArrayCodec: rows go through bit for bit, are stored in few bytes, and foreign bytes are refused."""

from __future__ import annotations

import re
from typing import Any

import lz4.block
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay.columns.codecs import ArrayCodec, Bytes
from shmreplay.columns.specs import ArraySpec

DTYPES = [np.dtype(code) for code in "?bBhHiIqQefdgFDG"]
ML = [np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "int4")]
SHAPES: list[tuple[int | None, ...]] = [(), (1,), (5,), (3, 4), (0,), (2, 0), (None,), (None, 3), (2, None, None)]


def row_of(spec: ArraySpec, rng: np.random.Generator, free: int) -> np.ndarray[Any, Any]:
    """A row of any bits that the dtype may have."""
    shape = tuple(free if size is None else size for size in spec.shape)
    high = 2 if spec.dtype.kind == "b" else 8
    bits = rng.integers(0, high, size=(int(np.prod(shape)), spec.dtype.itemsize), dtype=np.uint8)
    return bits.reshape(-1).view(spec.dtype).reshape(shape)


def as_bytes(*values: int) -> Bytes:
    return np.array(values, np.uint8)


@pytest.mark.parametrize("dtype", DTYPES + ML, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_every_row_goes_through_bit_for_bit(
    dtype: np.dtype[Any], shape: Any, compression: str | None, rng: np.random.Generator
) -> None:
    codec = ArrayCodec(ArraySpec(shape, dtype, compression=compression))
    for free in (0, 1, 7, 300):
        row = row_of(codec.spec, rng, free)
        stored = codec.encode(row)
        assert stored.dtype == np.uint8
        assert stored.ndim == 1
        assert codec.shape(stored) == row.shape
        found = codec.decode(stored)
        assert (found.dtype, found.shape, found.tobytes()) == (row.dtype, row.shape, row.tobytes())


@given(st.binary(max_size=2000), st.integers(1, 50))
def test_a_row_is_never_stored_in_more_bytes_than_it_has(data: bytes, times: int) -> None:
    row = np.frombuffer(data * times, np.uint8)
    stored = ArrayCodec(ArraySpec((None,), "u1", compression="lz4")).encode(row)
    assert stored.size <= 4 + row.size
    assert stored.tobytes() in (
        row.size.to_bytes(4, "little") + row.tobytes(),
        row.size.to_bytes(4, "little") + lz4.block.compress(row.tobytes(), store_size=False),
    )


def test_what_repeats_is_stored_in_fewer_bytes() -> None:
    codec = ArrayCodec(ArraySpec((84, 84), "u1", compression="lz4"))
    assert codec.encode(np.zeros((84, 84), np.uint8)).size < 84 * 84 // 50
    noise = np.random.default_rng(0).integers(0, 256, (84, 84), np.uint8)
    assert codec.encode(noise).size == 84 * 84


def test_a_row_of_a_fixed_shape_is_stored_as_it_lies_in_memory() -> None:
    row = np.arange(6, dtype="f4").reshape(2, 3)
    stored = ArrayCodec(ArraySpec((2, 3), "f4", optional=True)).encode(row)
    assert np.shares_memory(stored, row)
    assert stored.tobytes() == row.tobytes()


def test_a_row_of_any_size_says_its_size_first() -> None:
    codec = ArrayCodec(ArraySpec((None, 2, None), "u1"))
    stored = codec.encode(np.arange(12, dtype=np.uint8).reshape(3, 2, 2))
    assert stored[:8].tolist() == [3, 0, 0, 0, 2, 0, 0, 0]
    assert stored[8:].tolist() == list(range(12))


def test_a_row_that_the_heap_cannot_count_is_refused() -> None:
    huge = np.broadcast_to(np.zeros((), np.uint8), (0, 2**32 - 1))
    with pytest.raises(ValueError, match=re.escape("a row of shape (0, 4294967295) has 0 bytes to store; at most")):
        ArrayCodec(ArraySpec((None, None), "u1")).encode(huge)


# --- foreign bytes --------------------------------------------------------------------------------------------------

RAGGED = ArraySpec((None, 3), "f4")


@pytest.mark.parametrize(
    ("spec", "stored", "text"),
    [
        (ArraySpec((3,), "u1", optional=True), as_bytes(1, 2), "2 stored bytes for a row of 3"),
        (ArraySpec((3,), "u1", optional=True), as_bytes(1, 2, 3, 4), "4 stored bytes for a row of 3"),
        (RAGGED, as_bytes(1, 0, 0), "3 stored bytes; expected 4 of a header at least"),
        (RAGGED, as_bytes(2, 0, 0, 0, *range(12)), "12 stored bytes for a row of 24"),
        (RAGGED, as_bytes(255, 255, 255, 255), "0 stored bytes for a row of 51539607540"),
        (
            ArraySpec((100,), "u1", compression="lz4"),
            as_bytes(255, 255, 255),
            "3 stored bytes that are no LZ4 block of",
        ),
        (ArraySpec((10**6,), "u1", compression="lz4"), as_bytes(0, 1, 2), "3 stored bytes for a row of 1000000"),
        (
            ArraySpec((100,), "u1", compression="lz4"),
            np.frombuffer(lz4.block.compress(bytes(40), store_size=False), np.uint8),
            "an LZ4 block of 40 bytes for a row of 100",
        ),
    ],
)
def test_bytes_that_are_no_row_are_refused(spec: ArraySpec, stored: Bytes, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        ArrayCodec(spec).decode(stored)


@given(
    st.binary(max_size=300),
    st.sampled_from([(None,), (None, None), (4, None), (20,)]),
    st.sampled_from(["u1", "f4", "bfloat16"]),
    st.sampled_from([None, "lz4"]),
)
def test_any_bytes_are_a_row_or_refused(data: bytes, shape: Any, dtype: str, compression: str | None) -> None:
    codec = ArrayCodec(ArraySpec(shape, dtype, compression=compression, optional=True))
    try:
        row = codec.decode(np.frombuffer(data, np.uint8))
    except ValueError:
        return
    assert row.nbytes <= 255 * len(data) + 64
    assert codec.decode(codec.encode(row)).tobytes() == row.tobytes()
