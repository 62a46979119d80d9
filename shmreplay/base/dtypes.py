"""What kind of number a dtype has, also where another package added it to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FIRST_ADDED = 256  # numpy numbers dtypes that other packages added from here on, such as ml_dtypes' bfloat16


def is_added(dtype: np.dtype[Any]) -> bool:
    """Whether another package added the dtype to NumPy. Its `kind` says nothing: float8_e5m2 has "f", bfloat16 "V"."""
    return dtype.num >= _FIRST_ADDED and dtype.kind != "T"  # "T": NumPy's own strings of any length


def number_kind(dtype: np.dtype[Any]) -> str:
    """The kind of number as NumPy's letter: "b", "i", "u", "f" or "c". For a dtype of no numbers, its own kind."""
    if not is_added(dtype):
        return dtype.kind
    kinds = {"int": "i", "uint": "u", "complex": "c", "bcomplex": "c"}
    return kinds.get(dtype.name.rstrip("0123456789"), "f")


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether its values are real numbers or bools."""
    return number_kind(dtype) in "biuf"


def file_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype under which a .npy file has such values. An added one has no name there: it becomes bare bytes."""
    return np.dtype(f"V{dtype.itemsize}") if is_added(dtype) else dtype


def plain_number(value: np.generic) -> bool | int | float | complex | str:
    """The value of a scalar of any dtype as one of Python's. A long double beyond a float's range becomes text."""
    number: Any = value.item()
    if not isinstance(number, np.generic):
        return number  # type: ignore[no-any-return]
    if number_kind(number.dtype) == "c":
        return complex(number)
    with np.errstate(over="ignore"):
        near = float(number)
    return str(number) if np.isfinite(number) and not np.isfinite(near) else near


def as_float64(values: NDArray[Any]) -> NDArray[np.float64]:
    """Real numbers of any dtype as float64. What is beyond its range becomes infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64)
