"""What kind of number a dtype has, whatever NumPy says of it; scalars as Python's numbers."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shmreplay.base.dtypes import as_float64, file_dtype, is_added, is_real, number_kind, plain_number


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        *(("?", "b"), ("i1", "i"), ("u8", "u"), ("f2", "f"), (np.longdouble, "f"), ("c8", "c"), (np.clongdouble, "c")),
        *((ml_dtypes.bfloat16, "f"), (ml_dtypes.float8_e5m2, "f"), (ml_dtypes.float4_e2m1fn, "f")),
        *((ml_dtypes.int4, "i"), (ml_dtypes.uint2, "u"), ("U3", "U"), ("M8[s]", "M"), (np.dtypes.StringDType(), "T")),
    ],
    ids=str,
)
def test_the_kind_is_that_of_its_numbers(dtype: Any, kind: str) -> None:
    assert number_kind(np.dtype(dtype)) == kind
    assert is_real(np.dtype(dtype)) == (kind in "biuf")


def test_a_file_has_bare_bytes_for_what_numpy_cannot_name() -> None:
    assert file_dtype(np.dtype(ml_dtypes.float8_e5m2)) == np.dtype("V1")
    assert file_dtype(np.dtype(ml_dtypes.bfloat16)) == np.dtype("V2")
    assert file_dtype(np.dtype("f4")) == np.dtype("f4")
    assert is_added(np.dtype(ml_dtypes.float8_e5m2))
    assert not is_added(np.dtypes.StringDType())


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        *((np.float32(0.5), 0.5), (np.bool_(True), True), (np.uint64(2**64 - 1), 2**64 - 1)),
        *((np.longdouble(0.5), 0.5), (np.clongdouble(1 + 2j), 1 + 2j), (ml_dtypes.bfloat16(0.5), 0.5)),
        *((ml_dtypes.float8_e5m2(0.5), 0.5), (ml_dtypes.int4(-3), -3), (np.longdouble("1e400"), "1e+400")),
    ],
    ids=str,
)
def test_a_scalar_becomes_a_number_of_pythons(value: Any, wanted: Any) -> None:
    found = plain_number(value)
    assert (type(found), found) == (type(wanted), wanted)


def test_real_numbers_become_float64_without_a_warning() -> None:
    values = np.array(["1", "1e400"], np.longdouble)
    assert as_float64(values).tolist() == [1.0, np.inf]
    assert as_float64(np.array([0.5], ml_dtypes.float8_e5m2)).tolist() == [0.5]
