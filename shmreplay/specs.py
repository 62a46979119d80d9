"""ArraySpec: shape, dtype and rules of one column."""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shmreplay.checks import check_choice, wire_field

CASTS = ("safe", "same_kind", "no")
_MAX_ROW_BYTES = 2**32


@dataclass(frozen=True)
class ArraySpec:
    """One column: one leaf of a table's signature.

    Args:
        shape: shape of one step's row, a tuple of ints >= 0; `()` is a scalar, `(1,)` is not.
        dtype: anything that names a fixed-size number or boolean dtype in native byte order: a numpy dtype, its name, a
            scalar type, a torch or jax dtype, bfloat16 and the other dtypes of ml_dtypes. Kept as `np.dtype`.
        compression: None; not supported yet otherwise.
        optional: False; not supported yet otherwise.
        mutable: False; not supported yet otherwise.
        per: "step"; "item" is not supported yet.
        cast: what dtypes a value may have: "no" this one only, "safe" (the default) also those that lose nothing by
            numpy's `can_cast`, "same_kind" also float64 for float32 and the like.

    Raises:
        TypeError: `shape` is not a tuple of ints, or `dtype` names no dtype that shared memory can hold.
        ValueError: a negative dimension, a row of 4 GiB or more, or an option that is none of those above.

    What is not supported yet can be written down here and is refused by the signature, which knows the column's name.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    compression: str | None = None
    optional: bool = False
    mutable: bool = False
    per: str = "step"
    cast: str = "safe"

    def __init__(
        self,
        shape: Iterable[int],
        dtype: object,
        *,
        compression: str | None = None,
        optional: bool = False,
        mutable: bool = False,
        per: str = "step",
        cast: str = "safe",
    ) -> None:
        where = "ArraySpec"
        if compression is not None and not isinstance(compression, str):
            raise TypeError(f"{where}: compression is {compression!r}; expected None or a name")
        check_choice(where, "optional", optional, (False, True))
        check_choice(where, "mutable", mutable, (False, True))
        check_choice(where, "per", per, ("step", "item"))
        check_choice(where, "cast", cast, CASTS)
        values = {
            "shape": _shape_of(shape),
            "dtype": dtype_of(dtype),
            "compression": compression,
            "optional": optional,
            "mutable": mutable,
            "per": per,
            "cast": cast,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if None not in self.shape and self.row_bytes >= _MAX_ROW_BYTES:
            raise ValueError(
                f"{where}: a row of {self.dtype.name} {self.shape} has {self.row_bytes} bytes; expected less than "
                "4 GiB: divide it into several columns or steps"
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, without any padding."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        """The form used in error texts: `float32 (4,)`, and `cast=` where it is not the default."""
        cast = "" if self.cast == "safe" else f" cast={self.cast!r}"
        return f"{self.dtype.name} {self.shape}{cast}"

    def unsupported(self) -> str | None:
        """Returns what this version cannot store of the spec yet, and what to do about it, or None."""
        if any(size is None for size in self.shape):
            return f"shape={self.shape}; give every size"
        for name, plain in (("compression", None), ("optional", False), ("mutable", False), ("per", "step")):
            if (value := getattr(self, name)) != plain:
                return f"{name}={value!r}; leave it out"
        return None

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        return {
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "compression": self.compression,
            "optional": self.optional,
            "mutable": self.mutable,
            "per": self.per,
            "cast": self.cast,
        }

    @classmethod
    def from_wire(cls, wire: object) -> ArraySpec:
        """Remakes a spec from what `to_wire` returned.

        Raises:
            TypeError, ValueError: malformed, or a dtype that this process does not know.
        """
        names = ("shape", "dtype", "compression", "optional", "mutable", "per", "cast")
        shape, dtype, *options = (wire_field("column", wire, name) for name in names)
        if not isinstance(dtype, str):
            raise ValueError(f"column: malformed, dtype is {dtype!r}; expected a name")
        return cls(shape, dtype, **dict(zip(names[2:], options, strict=True)))  # type: ignore[arg-type]


def dtype_of(value: object) -> np.dtype[np.generic]:
    """Returns the numpy dtype that `value` names, checked to be one that shared memory can hold.

    Dtypes of other libraries count by their name: `torch.float32` is "float32".

    Raises:
        TypeError: `value` names no dtype; or one of Python objects, strings, bytes, dates or records; or one of foreign
            byte order.
    """
    if value is None:  # numpy would read it as float64
        raise TypeError('dtype is None; expected a dtype such as "float32"')
    dtype = _find_dtype(value)
    if problem := refusal(dtype):
        raise TypeError(f"dtype {dtype} cannot be a column: {problem}")
    if not dtype.isnative:
        raise TypeError(f'dtype {dtype.str!r} is of foreign byte order; declare the native "{dtype.name}"')
    # By the name once more: drops metadata, and folds C's aliases (long long) into one dtype a size.
    return _find_dtype(dtype.name)


def refusal(dtype: np.dtype[np.generic]) -> str | None:
    """Says why values of `dtype` cannot be stored, or returns None if they can."""
    if dtype.kind in "biufc":
        return None
    if dtype.names is not None:
        return "records have no single dtype; make each field a column"
    if dtype.kind in "mM":
        return 'dates have no number dtype; store them as int64 with .view("int64")'
    if dtype.kind == "O":
        return "Python objects cannot live in shared memory; use numbers of a fixed dtype"
    if dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        return None
    return "only numbers and booleans of a fixed size can; encode text or bytes as a uint8 array"


def _find_dtype(value: object) -> np.dtype[np.generic]:
    try:
        return np.dtype(value)  # type: ignore[call-overload, no-any-return]  # that is what is being found out
    except TypeError:
        pass
    # "torch.bfloat16" and tf's DType.name; numpy knows bfloat16 and its like only through ml_dtypes.
    name = str(getattr(value, "name", value)).rpartition(".")[2]
    for find in (np.dtype, _ml_dtype):
        try:
            return find(name)
        except (TypeError, AttributeError, ImportError):
            continue
    hint = " (bfloat16 and its like need the package ml_dtypes)" if "float" in name or "int" in name else ""
    raise TypeError(f'dtype {value!r} is not known to numpy{hint}; expected a dtype such as "float32"')


def _ml_dtype(name: str) -> np.dtype[np.generic]:
    dtype: np.dtype[np.generic] = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    return dtype


def _shape_of(shape: Iterable[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(shape)
    except TypeError:
        raise TypeError(f"shape is {shape!r}; expected a tuple of ints, such as (4,) or () for a scalar") from None
    return tuple(_size_of(size, sizes) for size in sizes)


def _size_of(size: object, shape: tuple[object, ...]) -> int:
    if size is None:  # of variable size; refused later, where the column's name is known
        return None  # type: ignore[return-value]
    try:
        number = operator.index(size)  # type: ignore[arg-type]  # that is what is being found out
    except TypeError:
        raise TypeError(f"shape is {shape!r}; expected a tuple of ints, such as (4,) or () for a scalar") from None
    if number < 0:
        raise ValueError(f"shape is {shape!r}; expected sizes >= 0")
    return number
