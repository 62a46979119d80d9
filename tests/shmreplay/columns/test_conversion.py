"""Conversion: what a column takes, and the texts of what it does not."""

from __future__ import annotations

import enum
import re
import warnings
from collections import OrderedDict
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay.columns.conversion import Array
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import SignatureMismatch

DTYPES = [
    np.dtype(code) for code in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
]
ML = [np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "int4")]


def convert(value: object, spec: ArraySpec, batch: int | None = None) -> Array:
    array = Signature.from_tree({"obs": {"x": spec}}, "replay").canonical({"obs": {"x": value}}, batch=batch)[0]
    assert array is not None
    assert type(array) is np.ndarray
    assert array.dtype == spec.dtype
    assert array.dtype.isnative
    assert array.shape == (spec.shape if batch is None else (batch, *spec.shape))
    assert array.flags.c_contiguous
    return array


def refused(value: object, spec: ArraySpec, batch: int | None = None) -> str:
    with pytest.raises(SignatureMismatch) as caught:
        convert(value, spec, batch)
    text = str(caught.value)
    assert text.startswith("table 'replay', column 'obs/x': ")
    return text.removeprefix("table 'replay', column 'obs/x': ")


# --- dtypes ---------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(DTYPES + ML + [dtype.newbyteorder() for dtype in DTYPES]),
    st.sampled_from(DTYPES + ML),
    st.sampled_from(["safe", "same_kind", "no"]),
    st.booleans(),
)
def test_a_dtype_is_taken_exactly_when_numpy_can_cast_it(
    given_dtype: np.dtype[Any], dtype: np.dtype[Any], cast: Any, scalar: bool
) -> None:
    value = np.ones(() if scalar else (3,), given_dtype)
    spec = ArraySpec(value.shape, dtype, cast=cast)
    if np.can_cast(given_dtype, dtype, cast):
        assert np.array_equal(convert(value, spec), np.ones(value.shape, dtype))
    else:
        assert refused(value, spec).startswith(f"expected {spec.dtype.name} {spec.shape}, got ")


@pytest.mark.parametrize("dtype", DTYPES + ML, ids=str)
def test_every_dtype_goes_through_bit_for_bit(dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    bits = rng.integers(0, 2 if dtype.kind == "b" else 8, size=(5, dtype.itemsize), dtype=np.uint8)
    value = bits.view(dtype)[:, 0]
    assert convert(value, ArraySpec((5,), dtype)).tobytes() == value.tobytes()


def test_integers_beyond_the_exact_floats_are_kept() -> None:
    assert convert(np.array(2**53 + 1), ArraySpec((), "i8")) == 2**53 + 1
    assert convert(2**53 + 1, ArraySpec((), "i8")) == 2**53 + 1


def test_a_wider_dtype_is_refused_with_what_to_do() -> None:
    text = refused(np.zeros(4), ArraySpec((4,), "f4"))
    assert text == (
        'expected float32 (4,), got float64 (4,); convert it with .astype("float32") '
        'or declare the column with cast="same_kind"'
    )


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (
            np.zeros((), "i8"),
            ArraySpec((), "u1"),
            'expected uint8 (), got int64 (); convert it with .astype("uint8")',
        ),
        (
            np.zeros(2, "f4"),
            ArraySpec((2,), "u1"),  # images given as floats
            'expected uint8 (2,), got float32 (2,); convert it with .astype("uint8")',
        ),
        (
            np.zeros(2, "f4"),
            ArraySpec((2,), "f8", cast="no"),
            'expected float64 (2,), got float32 (2,); convert it with .astype("float64") '
            'or declare the column with cast="safe"',
        ),
        (
            np.zeros(2, ">f8"),
            ArraySpec((2,), "f8", cast="no"),
            'expected float64 (2,), got >f8 (2,); convert it with .astype("float64") '
            'or declare the column with cast="safe"',
        ),
        (
            np.zeros(2, [("a", "f4")]),
            ArraySpec((2,), "f4"),
            "expected float32 (2,), got void32 (2,); records have no single dtype; make each field a column",
        ),
        (
            np.array(["x", "y"]),
            ArraySpec((2,), "u1"),
            "expected uint8 (2,), got str32 (2,); only numbers and booleans of a fixed size can; encode text or",
        ),
        (
            np.array([None, None]),
            ArraySpec((2,), "f4"),
            "expected float32 (2,), got object (2,); Python objects cannot live in shared memory",
        ),
    ],
)
def test_a_dtype_that_does_not_fit_is_named_with_what_to_do(value: object, spec: ArraySpec, text: str) -> None:
    assert refused(value, spec).startswith(text)


def test_same_kind_admits_a_narrowing_cast() -> None:
    array = convert(np.array([0.1, np.nan]), ArraySpec((2,), "f4", cast="same_kind"))
    assert array[0] == np.float32(0.1)
    assert np.isnan(array[1])


def test_a_numpy_scalar_counts_with_its_own_dtype() -> None:
    assert convert(np.float32(0.5), ArraySpec((), "f4")) == 0.5
    # np.float64 is a Python float besides, which would have been taken
    assert refused(np.float64(0.5), ArraySpec((), "f4")).startswith("expected float32 (), got float64 (); convert it")
    assert convert(np.bool_(True), ArraySpec((), "i4")) == 1


# --- Python numbers -------------------------------------------------------------------------------------------------


class Colour(enum.IntEnum):
    """An int by another name."""

    RED = 2


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "?"),
        (True, "i4"),
        (True, "u1"),
        (True, "f4"),
        (255, "u1"),
        (-128, "i1"),
        (2**64 - 1, "u8"),
        (-(2**63), "i8"),
        (Colour.RED, "i8"),
        (7, "f4"),
        (-8, "int4"),
        (0.5, "f2"),
        (0.5, "bfloat16"),
        (3, "bfloat16"),
        (1 + 2j, "c8"),
        (2, "c8"),
        (float("inf"), "f4"),
        (float("-inf"), "bfloat16"),
    ],
)
def test_a_python_number_in_range_is_taken(value: Any, dtype: str) -> None:
    assert convert(value, ArraySpec((), dtype)) == value


def test_nan_is_a_float() -> None:
    assert np.isnan(convert(float("nan"), ArraySpec((), "f4")))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1, "?", "expected bool (), got the Python int 1; pass True or False"),
        (0.0, "?", "expected bool (), got the Python float 0.0; pass True or False"),
        (256, "u1", "expected uint8 (), got the Python int 256; it is outside the dtype's range 0..255"),
        (
            -1,
            "u8",
            "expected uint64 (), got the Python int -1; it is outside the dtype's range 0..18446744073709551615",
        ),
        (128, "i1", "expected int8 (), got the Python int 128; it is outside the dtype's range -128..127"),
        (8, "int4", "expected int4 (), got the Python int 8; it is outside the dtype's range -8..7"),
        (1.0, "i4", "expected int32 (), got the Python float 1.0; pass an int, rounded the way you want"),
        (1.0, "int4", "expected int4 (), got the Python float 1.0; pass an int, rounded the way you want"),
        (1j, "i4", "expected int32 (), got the Python complex 1j; pass an int, rounded the way you want"),
        (1j, "f4", "expected float32 (), got the Python complex 1j; pass its real part"),
        (1e39, "f4", "expected float32 (), got the Python float 1e+39; it is outside the dtype's range -3.40282"),
        (
            70000,
            "f2",
            "expected float16 (), got the Python int 70000; it is outside the dtype's range -65504.0..65504.0",
        ),
        (1e39, "bfloat16", "expected bfloat16 (), got the Python float 1e+39; it is outside the dtype's range"),
        (
            1e300 + 0j,
            "c8",
            "expected complex64 (), got the Python complex (1e+300+0j); it is outside the dtype's range",
        ),
        pytest.param(10**5000, "f8", "expected float64 (), got the Python int 0x31e20801036510f3c5...", id="googol"),
        (
            10**50,
            "i8",
            "expected int64 (), got the Python int 10000000000000000000...0000000000 (51 characters); it is",
        ),
    ],
)
def test_a_python_number_that_does_not_fit_is_named_with_the_range(value: Any, dtype: str, text: str) -> None:
    assert refused(value, ArraySpec((), dtype)).startswith(text)


@given(st.integers(-(2**70), 2**70), st.sampled_from([dtype for dtype in DTYPES if dtype.kind in "iu"]))
def test_a_python_int_is_taken_exactly_when_the_dtype_holds_it(value: int, dtype: np.dtype[Any]) -> None:
    info = np.iinfo(dtype)
    if info.min <= value <= info.max:
        assert int(convert(value, ArraySpec((), dtype))) == value
    else:
        assert f"range {info.min}..{info.max}" in refused(value, ArraySpec((), dtype))


@given(st.floats(width=64), st.sampled_from([np.dtype("f2"), np.dtype("f4"), np.dtype("f8")]))
def test_a_python_float_is_rounded_and_never_overflows(value: float, dtype: np.dtype[Any]) -> None:
    with np.errstate(over="ignore"):
        rounded = np.asarray(value, dtype)
    if np.isfinite(value) and not np.isfinite(rounded):
        assert "outside the dtype's range" in refused(value, ArraySpec((), dtype))
    else:
        assert np.array_equal(convert(value, ArraySpec((), dtype)), rounded, equal_nan=True)


def test_a_number_too_large_warns_of_nothing_besides_its_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(1e300, ArraySpec((), "f4"))


# --- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (
            np.zeros(1, "f4"),
            ArraySpec((), "f4"),
            "expected float32 (), got float32 (1,); bring it into shape with .reshape(())",
        ),
        (
            np.float32(0),
            ArraySpec((1,), "f4"),
            "expected float32 (1,), got float32 (); bring it into shape with .reshape((1,))",
        ),
        (
            np.zeros((1, 4), "f4"),
            ArraySpec((4,), "f4"),
            "expected float32 (4,), got float32 (1, 4); bring it into shape with .reshape((4,))",
        ),
        (
            np.zeros(5, "f4"),
            ArraySpec((4,), "f4"),
            "expected float32 (4,), got float32 (5,); pass one of shape (4,) or declare the column with the",
        ),
        (
            np.zeros(5),
            ArraySpec((4,), "f4"),
            "expected float32 (4,), got float64 (5,); pass one of shape (4,)",
        ),
        (
            0.5,
            ArraySpec((1,), "f4"),
            "expected float32 (1,), got the Python float 0.5; pass a numpy array of that shape",
        ),
        (3, ArraySpec((2, 2), "u1"), "expected uint8 (2, 2), got the Python int 3; pass a numpy array of that shape"),
    ],
)
def test_a_shape_that_does_not_fit_is_named_with_what_to_do(value: object, spec: ArraySpec, text: str) -> None:
    assert refused(value, spec).startswith(text)


@pytest.mark.parametrize(
    ("value", "batch", "text"),
    [
        (
            np.zeros((3, 4), "f4"),
            2,
            "expected float32 (2, 4), got float32 (3, 4); every column of a batch has the same",
        ),
        (np.zeros(4, "f4"), 1, "expected float32 (1, 4), got float32 (4,); bring it into shape with .reshape((1, 4))"),
        (np.zeros((2, 5), "f4"), 2, "expected float32 (2, 4), got float32 (2, 5); pass one of shape (2, 4) or declare"),
        (np.zeros((2, 4)), 2, "expected float32 (2, 4), got float64 (2, 4); convert it"),
        (0.5, 2, "expected float32 (2, 4), got the Python float 0.5; pass a numpy array of that shape"),
    ],
)
def test_a_batch_that_does_not_fit_is_named_with_its_leading_axis(value: object, batch: int, text: str) -> None:
    assert refused(value, ArraySpec((4,), "f4"), batch).startswith(text)


def test_a_python_number_is_no_batch_of_scalars() -> None:
    text = "expected float32 (2,), got the Python float 0.5; pass a numpy array of that shape"
    assert refused(0.5, ArraySpec((), "f4"), 2) == text


@pytest.mark.parametrize("batch", [0, 1, 5])
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3)])
def test_batches_and_empty_shapes_are_taken(batch: int, shape: tuple[int, ...]) -> None:
    convert(np.ones((batch, *shape), "u1"), ArraySpec(shape, "i2"), batch)


def test_memory_order_and_flags_do_not_matter() -> None:
    base = np.arange(24, dtype="f4").reshape(4, 6)
    frozen = base.copy()
    frozen.flags.writeable = False
    for value in (base.T, base[::2, ::-3], frozen, np.asfortranarray(base), np.broadcast_to(base[0], (4, 6))):
        assert np.array_equal(convert(value, ArraySpec(value.shape, "f4")), value)


def test_an_array_that_fits_is_not_copied() -> None:
    value = np.zeros(4, "f4")
    assert np.shares_memory(convert(value, ArraySpec((4,), "f4")), value)


# --- other objects --------------------------------------------------------------------------------------------------


class HostTensor:
    """As tensors in host memory and jax arrays are."""

    shape = (2,)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array([1, 2], "f4")


class Device:
    """As torch has them."""

    type = "cuda"

    def __str__(self) -> str:
        return "cuda:0"


class GpuTensor:
    """As torch has them: `__array__` is there, and raises."""

    device = Device()
    is_cuda = True

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise AssertionError("must not be asked")


class LearningTensor:
    """A tensor that still wants its gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise RuntimeError("use detach() first")


def test_what_turns_itself_into_an_array_is_taken() -> None:
    assert convert(HostTensor(), ArraySpec((2,), "f4")).tolist() == [1, 2]
    assert refused(HostTensor(), ArraySpec((2,), "f2")).startswith(
        "expected float16 (2,), got float32 (2,); convert it"
    )


def test_a_tensor_on_a_gpu_is_refused_with_what_to_do() -> None:
    text = refused(GpuTensor(), ArraySpec((2,), "f4"))
    assert re.fullmatch(
        r"expected float32 \(2,\), got a \S*GpuTensor on device 'cuda:0'; copy it to host memory first, with \.cpu\(\)",
        text,
    )


def test_a_tensor_that_numpy_cannot_read_is_refused_with_the_reason() -> None:
    text = refused(LearningTensor(), ArraySpec((2,), "f4"))
    assert "LearningTensor that numpy cannot read (use detach() first); pass a numpy array" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1.0, 2.0], "expected float32 (2,), got a list of 2; pass a numpy array"),
        ((1.0, 2.0), "expected float32 (2,), got a tuple of 2; pass a numpy array"),
        ({"a": 1}, "expected float32 (2,), got a dict with the keys 'a'; pass a numpy array"),
        ("12", "expected float32 (2,), got a str; pass a numpy array"),
        (None, "is None; expected float32 (2,); only a partial append may leave a column out"),
    ],
)
def test_what_is_no_array_is_refused(value: object, text: str) -> None:
    assert refused(value, ArraySpec((2,), "f4")) == text


# --- structure ------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any


class Other(NamedTuple):
    """Another class with the same fields, as a second process has it."""

    left: Any
    right: Any


class Swapped(NamedTuple):
    """The same number of fields, but others."""

    right: Any
    left: Any


SCALAR = ArraySpec((), "f4")
NESTED = Signature.from_tree({"a": {"b": [SCALAR, SCALAR]}, "p": Pair(SCALAR, SCALAR)}, "replay")


@pytest.mark.parametrize("ab", [[1, 2], (1, 2), Pair(1, 2)])
@pytest.mark.parametrize("pair", [Pair(3, 4), Other(3, 4)])
def test_sequences_stand_for_each_other_and_named_tuples_are_known_by_their_fields(ab: Any, pair: Any) -> None:
    arrays = NESTED.canonical(OrderedDict(p=pair, a={"b": ab}))
    assert [float(array) for array in arrays if array is not None] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (3, "table 'replay': expected a dict with the keys 'a', 'p', got the Python int 3"),
        ([1], "table 'replay': expected a dict with the keys 'a', 'p', got a list of 1"),
        ({"a": np.zeros(3)}, "table 'replay', 'a': expected a dict with the keys 'b', got float64 (3,)"),
        ({"a": {"b": [1]}}, "table 'replay', 'a/b': expected a list of 2, got a list of 1"),
        ({"a": {"b": np.zeros(2)}}, "table 'replay', 'a/b': expected a list of 2, got float64 (2,)"),
        ({"a": {"b": "xy"}}, "table 'replay', 'a/b': expected a list of 2, got a str"),
        ({"p": (1, 2)}, "table 'replay', 'p': expected a named tuple Pair(left, right), got a tuple of 2"),
        (
            {"p": Swapped(1, 2)},
            "table 'replay', 'p': expected a named tuple Pair(left, right), got a named tuple Swapped(",
        ),
        (
            {"p": {"left": 1, "right": 2}},
            "table 'replay', 'p': expected a named tuple Pair(left, right), got a dict with",
        ),
        ({"q": 1}, "table 'replay': unknown key 'q'; the signature has 'a', 'p' there; remove it, or declare a column"),
        ({"a": {"c": 1}}, "table 'replay': unknown key 'a/c'; the signature has 'b' there; remove it, or declare"),
        ({"a": {1: 1}}, "table 'replay': unknown key 'a/1'; the signature has 'b' there"),
        ({}, "table 'replay', column 'a/b[0]': missing from the step; expected float32 (); only a partial append may"),
        (None, "table 'replay', column 'a/b[0]': missing from the step"),
        ({"a": {"b": [1, None]}}, "table 'replay', column 'a/b[1]': is None; expected float32 ()"),
        ({"a": {"b": [1, 2]}}, "table 'replay', column 'p/left': missing from the step; expected float32 ()"),
    ],
)
def test_a_step_built_otherwise_is_refused_at_its_path(step: object, text: str) -> None:
    with pytest.raises(SignatureMismatch, match=re.escape(text)):
        NESTED.canonical(step)


def test_what_a_signal_handler_raises_is_no_reason_to_refuse_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes out of whatever runs then: here of numpy's asarray, the only call in reach."""

    def interrupted(*arguments: object, **options: object) -> None:
        raise TimeoutError("an alarm")

    monkeypatch.setattr(np, "asarray", interrupted)
    with pytest.raises(TimeoutError, match="an alarm"):
        convert(np.float32(1), ArraySpec((), "float32"))
