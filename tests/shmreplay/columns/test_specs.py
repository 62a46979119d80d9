"""ArraySpec: the dtypes it takes and those it refuses."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay.columns.specs import ArraySpec, dtype_of

NATIVE = [np.dtype(code) for code in "?bBhHiIlLqQefdgFDG"]
ML = [np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4")]


class ForeignDtype:
    """As torch and TensorFlow have them: numpy cannot read it, but its name says what it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize("dtype", NATIVE + ML, ids=str)
def test_every_number_dtype_is_kept_as_it_is(dtype: np.dtype[Any]) -> None:
    spec = ArraySpec((2, 3), dtype)
    assert spec.dtype == dtype
    assert spec.row_bytes == 6 * dtype.itemsize


@pytest.mark.parametrize(
    ("given_dtype", "name"),
    [
        ("f4", "float32"),
        (np.uint8, "uint8"),
        (float, "float64"),
        (bool, "bool"),
        ("bfloat16", "bfloat16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (ForeignDtype("torch.float32"), "float32"),
        (ForeignDtype("torch.bfloat16"), "bfloat16"),
        (np.dtype("longlong"), "int64"),
        (np.dtype("f4", metadata={"note": 1}), "float32"),
    ],
)
def test_dtypes_are_taken_in_any_form_that_names_them(given_dtype: object, name: str) -> None:
    assert ArraySpec((), given_dtype).dtype.name == name


def test_aliases_of_a_c_type_are_one_dtype() -> None:
    assert dtype_of("longlong").num == dtype_of("int64").num
    assert dtype_of(np.dtype("f4", metadata={"note": 1})).metadata is None


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (None, 'dtype is None; expected a dtype such as "float32"'),
        (
            object,
            "dtype object cannot be a column: Python objects cannot live in shared memory; use numbers of a fixed",
        ),
        ("U5", "cannot be a column: only numbers and booleans of a fixed size can; encode text or bytes as a uint8"),
        ("S5", "cannot be a column: only numbers and booleans of a fixed size can"),
        ("V8", "cannot be a column: only numbers and booleans of a fixed size can"),
        ([("a", "f4")], "cannot be a column: records have no single dtype; make each field a column"),
        ("M8[s]", "cannot be a column: dates have no number dtype; store them as int64"),
        ("m8[s]", "cannot be a column: dates have no number dtype"),
        (">f4", "dtype '>f4' is of foreign byte order; declare the native \"float32\""),
        ("nonsense", "dtype 'nonsense' is not known to numpy; expected a dtype"),
        ("float9", "dtype 'float9' is not known to numpy; expected a dtype such as"),
    ],
)
def test_a_dtype_that_cannot_be_shared_is_refused_with_the_reason(dtype: object, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        ArraySpec((), dtype)


def test_bfloat16_is_found_by_its_name_where_nobody_has_imported_it() -> None:
    code = "from shmreplay.columns.specs import ArraySpec; print(ArraySpec((), 'bfloat16').dtype.name)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("bfloat16\n", "")


@pytest.mark.parametrize("shape", [4, None, (1.5,), ("4",), [[1]]])
def test_a_shape_that_is_no_tuple_of_ints_is_a_type_error(shape: Any) -> None:
    with pytest.raises(TypeError, match=r"shape is .*; expected a tuple of ints, such as \(4,\) or \(\) for a scalar"):
        ArraySpec(shape, "f4")


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("shape is (3, -1); expected sizes >= 0")):
        ArraySpec((3, -1), "f4")


@pytest.mark.parametrize(("options", "gibibytes"), [({}, 2), ({"optional": True}, 4), ({"compression": "lz4"}, 4)])
def test_a_row_that_is_too_large_for_an_arena_is_refused(options: dict[str, Any], gibibytes: int) -> None:
    numbers = gibibytes * 2**28
    assert ArraySpec((numbers - 1,), "f4", **options).row_bytes == 4 * numbers - 4
    text = f"a row of float32 ({numbers},) has {4 * numbers} bytes; expected less than {gibibytes} GiB: divide it into"
    with pytest.raises(ValueError, match=re.escape(text)):
        ArraySpec((numbers,), "f4", **options)


def test_sizes_become_plain_ints_and_may_be_zero() -> None:
    sizes: Any = [np.int64(3), 0]
    spec = ArraySpec(sizes, "f8")
    assert spec.shape == (3, 0)
    assert all(type(size) is int for size in spec.shape)
    assert spec.row_bytes == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cast": "unsafe"}, "cast is 'unsafe'; expected one of 'safe', 'same_kind', 'no'"),
        ({"per": "row"}, "per is 'row'; expected one of 'step', 'item'"),
        ({"optional": 1}, "optional is 1; expected one of False, True"),
        ({"mutable": None}, "mutable is None; expected one of False, True"),
        ({"compression": "zstd"}, "compression is 'zstd'; expected one of None, 'lz4'"),
        ({"compression": 3}, "compression is 3; expected one of None, 'lz4'"),
    ],
)
def test_an_unknown_option_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        ArraySpec((), "f4", **options)


def test_it_is_frozen_and_equal_by_value() -> None:
    spec = ArraySpec((4,), "f4")
    assert spec == ArraySpec([4], np.float32)
    assert hash(spec) == hash(ArraySpec([4], np.float32))
    assert spec != ArraySpec((4,), "f4", cast="no")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.shape = ()  # type: ignore[misc]


def test_its_text_is_dtype_shape_and_an_unusual_cast() -> None:
    assert str(ArraySpec((4,), "f4")) == "float32 (4,)"
    assert str(ArraySpec((), "u1", cast="same_kind")) == "uint8 () cast='same_kind'"


HEAP_OPTIONS: list[dict[str, Any]] = [{"compression": "lz4"}, {"optional": True}, {"per": "item"}]


@pytest.mark.parametrize("options", HEAP_OPTIONS)
def test_what_varies_is_in_the_heap(options: dict[str, Any]) -> None:
    assert ArraySpec((3,), "f4", **options).in_heap
    assert ArraySpec((None, 3), "f4").in_heap
    assert not ArraySpec((3,), "f4").in_heap
    assert not ArraySpec((3,), "f4", mutable=True).in_heap


@pytest.mark.parametrize("options", HEAP_OPTIONS)
def test_what_is_in_the_heap_cannot_be_mutable(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    text = f"ArraySpec: mutable=True and {name}={value!r}; only a column of a fixed shape that every step has"
    with pytest.raises(ValueError, match=re.escape(text)):
        ArraySpec((3,), "f4", mutable=True, **options)
    with pytest.raises(ValueError, match=re.escape("mutable=True and shape=(None, 3)")):
        ArraySpec((None, 3), "f4", mutable=True)


def test_a_mean_of_bytes_is_for_columns_whose_rows_vary() -> None:
    assert ArraySpec((3,), "f4", compression="lz4", mean_bytes=5).mean_bytes == 5
    with pytest.raises(ValueError, match=re.escape("mean_bytes is 5, but every row of float32 (3,) has 12; it is for")):
        ArraySpec((3,), "f4", mean_bytes=5)
    with pytest.raises(ValueError, match="mean_bytes is 0; expected an integer in 1"):
        ArraySpec((None,), "f4", mean_bytes=0)


@pytest.mark.parametrize(
    ("spec", "planned"),
    [
        (ArraySpec((10,), "f4", compression="lz4"), 20),
        (ArraySpec((), "u1", compression="lz4"), 1),
        (ArraySpec((10,), "f4", optional=True), 40),
        (ArraySpec((10,), "f4", per="item"), 40),
        (ArraySpec((None, 3), "f4"), 4 + 16 * 3 * 4),
        (ArraySpec((None, None), "u1", compression="lz4"), 8 + 128),
        (ArraySpec((None, 3), "f4", mean_bytes=77), 77),
    ],
)
def test_the_heap_is_planned_by_what_a_row_takes_on_average(spec: ArraySpec, planned: int) -> None:
    assert spec.planned_bytes == planned


def test_the_text_of_a_spec_has_its_options() -> None:
    assert str(ArraySpec((None, 3), "f4", compression="lz4")) == "float32 (None, 3) compression='lz4'"
    assert str(ArraySpec((), "f4", per="item", optional=True)) == "float32 () optional=True per='item'"


@given(
    st.lists(st.none() | st.integers(0, 40), max_size=5),  # a row of 16-byte numbers stays below 4 GiB
    st.sampled_from(NATIVE + ML),
    st.sampled_from(["safe", "same_kind", "no"]),
    st.sampled_from([{}, {"compression": "lz4", "mean_bytes": 7}, {"optional": True}, {"per": "item"}]),
)
def test_its_wire_form_goes_through_msgpack_and_back(
    shape: list[int | None], dtype: np.dtype[Any], cast: str, options: dict[str, Any]
) -> None:
    spec = ArraySpec(shape, dtype, cast=cast, **options)
    assert ArraySpec.from_wire(msgpack.unpackb(msgpack.packb(spec.to_wire()))) == spec


def test_a_malformed_wire_form_is_refused() -> None:
    wire = ArraySpec((), "f4").to_wire()
    with pytest.raises(ValueError, match="column: malformed, expected a map with 'dtype'"):
        ArraySpec.from_wire({name: value for name, value in wire.items() if name != "dtype"})
    with pytest.raises(ValueError, match=re.escape("column: malformed, dtype is [['a', 'f4']]; expected a name")):
        ArraySpec.from_wire({**wire, "dtype": [["a", "f4"]]})
