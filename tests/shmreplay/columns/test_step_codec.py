"""StepCodec: every step comes back as it was, and foreign bytes are refused."""

from __future__ import annotations

import collections
import enum
import re
import struct
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from shmreplay.columns.step_codec import StepCodec

CODEC = StepCodec()
DTYPES = [np.dtype(code) for code in "?bBhHiIlLefdFD"]
ML = [np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "int4")]

ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
SCALARS = ARRAYS.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary(), ARRAYS, SCALARS
)
STEPS = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(), inner, max_size=4),
    ),
    max_leaves=12,
)


def is_same(a: Any, b: Any) -> bool:
    """Of one type, with the same parts, bit for bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return bool(a == b)


@given(STEPS)
def test_every_step_comes_back_as_it_was(step: Any) -> None:
    assert is_same(CODEC.decode(CODEC.encode(step)), step)


@pytest.mark.parametrize("dtype", DTYPES + ML, ids=str)
def test_arrays_and_scalars_of_every_dtype_come_back(dtype: np.dtype[Any]) -> None:
    for array in (np.ones((2, 3), dtype), np.ones((), dtype), np.ones((0, 4), dtype), np.ones((3, 2), dtype).T):
        assert is_same(CODEC.decode(CODEC.encode({"x": array})), {"x": array})
    scalar = np.ones(1, dtype)[0]
    assert is_same(CODEC.decode(CODEC.encode(scalar)), scalar)


def test_what_comes_back_can_be_written_to() -> None:
    stored = CODEC.encode([np.zeros(3)])
    CODEC.decode(stored)[0][:] = 7
    assert CODEC.decode(stored)[0].tolist() == [0, 0, 0]


Pair = collections.namedtuple("Pair", "a b")
Colour = enum.IntEnum("Colour", "RED")
EXPECTED = "; expected numbers, bools, None, str, bytes, numpy arrays, and lists, tuples and dicts of them"
DEEP: list[Any] = []
DEEP.append(DEEP)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (object(), "step is of type object" + EXPECTED),
        ({"a": [1, {2, 3}]}, "a[1] is of type set" + EXPECTED),
        ({"obs": {"pos": (1, Pair(1, 2))}}, f"obs/pos[1] is of type {__name__}.Pair" + EXPECTED),
        (Colour.RED, "Colour" + EXPECTED),
        (collections.OrderedDict(a=1), "step is of type collections.OrderedDict" + EXPECTED),
        ([1j], "[0] is of type complex" + EXPECTED),
        ({"a": {3: 1}}, "a has the key 3; expected keys of type str"),
        ([2**64], "[0] is an int of 65 bits; expected one of at most 64"),
        ({"a": np.array(["x"])}, "a: dtype <U1 cannot be a column: only numbers and booleans of a fixed size"),
        ({"a": np.array([object()])}, "a: dtype object cannot be a column"),
        ({"a": np.zeros(2, ">f4")}, "a: dtype '>f4' is of foreign byte order"),
        (DEEP, "is nested deeper than 64 levels; make it flatter"),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_path(step: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        CODEC.encode(step)


# --- foreign bytes --------------------------------------------------------------------------------------------------


def extension(code: int, payload: bytes) -> bytes:
    packed: bytes = msgpack.packb(msgpack.ExtType(code, payload))
    return packed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "0 stored bytes that are no step"),
        (b"\xc1", "1 stored bytes that are no step"),
        (b"\x01\x02", "extra data"),
        (b"\xdd\xff\xff\xff\xff", "no step"),
        (b"\x91" * 5000 + b"\x01", "no step"),
        (msgpack.packb({1: 2}), "a map with the keys [1]"),
        (msgpack.packb({0: 2}), "a map with the keys [0]"),
        (extension(5, b""), "extension 5"),
        (extension(1, b""), "no step"),
        (extension(1, b"\x03\x00obj"), "no step"),
        (extension(1, b"\x06\x00object"), "cannot be a column"),
        (
            extension(1, b"\x05\x01uint8" + (2**40).to_bytes(8, "little")),
            "an array of 0 bytes for uint8 (1099511627776,)",
        ),
        (extension(1, b"\x05\x02uint8" + bytes(8) + b"\xff" * 8), "no step"),
    ],
)
def test_bytes_that_are_no_step_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        CODEC.decode(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"x": ["a", "\ud800"]}, "x[1] is a str with a lone surrogate"),
        ({"x": {"\udfff": 1}}, "x has the key '\\udfff' with a lone surrogate"),
        ("\ud800", "step is a str with a lone surrogate"),
    ],
)
def test_a_lone_surrogate_is_refused_by_its_place(step: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        CODEC.encode(step)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_step_or_refused(data: bytes) -> None:
    try:
        step = CODEC.decode(np.frombuffer(data, np.uint8))
    except ValueError:
        return
    assert is_same(CODEC.decode(CODEC.encode(step)), step)


@given(STEPS, st.data())
def test_a_step_with_a_changed_byte_is_a_step_or_refused(step: Any, data: st.DataObject) -> None:
    stored = CODEC.encode(step).copy()
    stored[data.draw(st.integers(0, stored.size - 1))] ^= data.draw(st.integers(1, 255))
    try:
        CODEC.decode(stored)
    except ValueError as error:
        assert "stored bytes that are no step" in str(error)  # noqa: PT017  (either outcome is right)
