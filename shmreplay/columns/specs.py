"""ArraySpec: shape, dtype and rules of one column."""

from __future__ import annotations

import importlib
import math
import operator
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shmreplay.base.cached_property import cached_property
from shmreplay.base.checks import check_choice, check_int, wire_field
from shmreplay.base.process_names import process_name

CASTS = ("safe", "same_kind", "no")
COMPRESSIONS = (None, "lz4")
_MAX_ROW_BYTES = 2**32
_MAX_PLAIN_BYTES = 2**31  # of a row that is not in the heap, or that the core packs
_PLANNED_SIZE = 16  # size of an axis of any size, to plan memory
_WHERE = "ArraySpec"


class MissingPackage(TypeError):
    """A dtype needs a package that this process' environment lacks. The arena or file that has it is in order."""


@dataclass(frozen=True)
class ArraySpec:
    """One column: one leaf of a table's signature.

    Columns that are compressed, of variable shape, optional or per item are stored in a heap of blocks; the others are
    stored in the rows. A mutable column must have a fixed shape and none of these options.

    Args:
        shape: shape of one step's row, a tuple of ints >= 0; `()` is a scalar, `(1,)` is not. None is an axis of any
            size, as in `(None, 3)`: batches are padded to the longest, or concatenated.
        dtype: anything that names a fixed-size number or boolean dtype in native byte order: a numpy dtype, its name, a
            scalar type, a torch or jax dtype, bfloat16 and the other dtypes of ml_dtypes. Kept as `np.dtype`.
        compression: "lz4" stores each row as an LZ4 block, or, in a column of one shape that is neither optional nor
            per item, as the changes since the previous row, whichever is shorter; None does not compress.
        optional: a step may leave the column out; batches then have zeros, and False in the mask.
        mutable: `table.update_data` may change stored values.
        per: "step", or "item" for a value that an item brings with it, `create_item(values={...})`.
        cast: which dtypes a value may have: "no" only this one, "safe" (the default) also those that lose nothing by
            numpy's `can_cast`, "same_kind" also float64 for float32 and the like. A number beyond the dtype's range is
            refused under every rule; but an array of float4 or float6, which have no infinity, has its largest one.
        mean_bytes: for a column in the heap, the average stored bytes of a row, to plan the heap. None: half of the row
            if it is compressed, otherwise all of it; an axis of any size counts as 16.

    Raises:
        TypeError: `shape` is not a tuple of ints, or `dtype` names no dtype that shared memory can hold.
        ValueError: a negative dimension, a row of 2 GiB or more (in the heap: 4 GiB), an unknown option, or options
            that conflict.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[np.generic]
    compression: str | None = None
    optional: bool = False
    mutable: bool = False
    per: str = "step"
    cast: str = "safe"
    mean_bytes: int | None = None

    def __init__(
        self,
        shape: Iterable[int | None],
        dtype: object,
        *,
        compression: str | None = None,
        optional: bool = False,
        mutable: bool = False,
        per: str = "step",
        cast: str = "safe",
        mean_bytes: int | None = None,
    ) -> None:
        check_choice(_WHERE, "compression", compression, COMPRESSIONS)
        check_choice(_WHERE, "optional", optional, (False, True))
        check_choice(_WHERE, "mutable", mutable, (False, True))
        check_choice(_WHERE, "per", per, ("step", "item"))
        check_choice(_WHERE, "cast", cast, CASTS)
        if mean_bytes is not None:
            mean_bytes = check_int(_WHERE, "mean_bytes", mean_bytes, 1, _MAX_ROW_BYTES - 1)
        values = {
            "shape": _shape_of(shape),
            "dtype": dtype_of(dtype),
            "compression": compression,
            "optional": optional,
            "mutable": mutable,
            "per": per,
            "cast": cast,
            "mean_bytes": mean_bytes,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        limit = _MAX_ROW_BYTES if self.in_heap else _MAX_PLAIN_BYTES
        if self.row_bytes >= limit:
            raise ValueError(
                f"{_WHERE}: a row of {self.dtype.name} {self.shape} has {self.row_bytes} bytes; expected less than "
                f"{limit >> 30} GiB: divide it into several columns or steps"
            )
        self._check_combination()

    def _check_combination(self) -> None:
        if self.mutable and self.in_heap:
            other = next(text for text, is_set in self._heap_options() if is_set)
            raise ValueError(
                f"{_WHERE}: mutable=True and {other}; only a column of a fixed shape that every step has, not "
                "compressed, can be changed in place: leave one of them out"
            )
        if self.mean_bytes is not None and not self.in_heap:
            raise ValueError(
                f"{_WHERE}: mean_bytes is {self.mean_bytes}, but every row of {self.dtype.name} {self.shape} has "
                f"{self.row_bytes}; it is for columns that are compressed, of variable shape, optional or per item"
            )

    def _heap_options(self) -> tuple[tuple[str, bool], ...]:
        return (
            (f"compression={self.compression!r}", self.compression is not None),
            (f"shape={self.shape}", None in self.shape),
            ("optional=True", self.optional),
            ("per='item'", self.per == "item"),
        )

    @property
    def least_shape(self) -> tuple[int, ...]:
        """The shape, with 0 for axes of any size."""
        return tuple(size or 0 for size in self.shape)

    @cached_property
    def in_heap(self) -> bool:
        """Whether the values are stored in the heap instead of the rows."""
        return any(is_set for _, is_set in self._heap_options())

    @cached_property
    def is_packed(self) -> bool:
        """Whether the core compresses its rows: they are in the heap, but callers pass and get arrays."""
        is_alone = None not in self.shape and not self.optional and not self.is_per_item
        return self.compression is not None and is_alone and 0 < self.row_bytes < _MAX_PLAIN_BYTES

    @property
    def is_coded(self) -> bool:
        """Whether its values are in the heap as bytes that a Python codec makes."""
        return self.in_heap and not self.is_packed

    @property
    def is_per_item(self) -> bool:
        """Whether the value belongs to an item, not to a step."""
        return self.per == "item"

    @property
    def planned_bytes(self) -> int:
        """Average stored bytes of a row in the heap, to plan the heap."""
        if self.mean_bytes is not None:
            return self.mean_bytes
        header = 4 * self.shape.count(None)
        return header + (self.row_bytes if self.compression is None else max(self.row_bytes // 2, 1))

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, without any padding; an axis of any size counts as 16."""
        return math.prod(_PLANNED_SIZE if size is None else size for size in self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        """The form used in error texts: `float32 (4,)`, and the options that are not the default."""
        given = [(name, getattr(self, name)) for name, plain in _OPTIONS if getattr(self, name) != plain]
        return f"{self.dtype.name} {self.shape}" + "".join(f" {name}={value!r}" for name, value in given)

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        options = {name: getattr(self, name) for name, _ in _OPTIONS}
        return {"shape": list(self.shape), "dtype": self.dtype.name, **options}

    @classmethod
    def from_wire(cls, wire: object) -> ArraySpec:
        """Remakes a spec from what `to_wire` returned.

        Raises:
            TypeError, ValueError: malformed, or a dtype that this process does not know.
        """
        names = [name for name, _ in _OPTIONS]
        shape, dtype, *options = (wire_field("column", wire, name) for name in ("shape", "dtype", *names))
        if not isinstance(dtype, str):
            raise ValueError(f"column: malformed, dtype is {dtype!r}; expected a name")
        return cls(shape, dtype, **dict(zip(names, options, strict=True)))  # type: ignore[arg-type]


# The options and their defaults.
_OPTIONS: tuple[tuple[str, object], ...] = (
    ("compression", None),
    ("optional", False),
    ("mutable", False),
    ("per", "step"),
    ("cast", "safe"),
    ("mean_bytes", None),
)


def dtype_of(value: object) -> np.dtype[np.generic]:
    """Returns the numpy dtype that `value` names, checked to be one that shared memory can hold.

    Dtypes of other libraries are recognised by name: `torch.float32` is "float32".

    Raises:
        TypeError: `value` names no dtype, or one of Python objects, strings, bytes, dates or records, or one of foreign
            byte order.
    """
    if value is None:  # numpy would read it as float64
        raise TypeError('dtype is None; expected a dtype such as "float32"')
    dtype = _find_dtype(value)
    if problem := refusal(dtype):
        raise TypeError(f"dtype {dtype} cannot be a column: {problem}")
    if not dtype.isnative:
        raise TypeError(f'dtype {dtype.str!r} is of foreign byte order; declare the native "{dtype.name}"')
    # Looked up by name again, which drops metadata and unifies C's aliases (long long).
    return _find_dtype(dtype.name)


def refusal(dtype: np.dtype[np.generic]) -> str | None:
    """Returns why values of `dtype` cannot be stored; None if they can."""
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
        return np.dtype(value)  # type: ignore[call-overload, no-any-return]  # checked here
    except TypeError:
        pass
    # "torch.bfloat16" and tf's DType.name; numpy knows bfloat16 and its like only through ml_dtypes.
    name = str(getattr(value, "name", value)).rpartition(".")[2]
    for find in (np.dtype, _ml_dtype):
        try:
            return find(name)
        except (TypeError, AttributeError, ImportError):
            continue
    if ("float" in name or "int" in name) and not _has_ml_dtypes():
        raise MissingPackage(
            f"dtype {value!r} is not known to numpy; bfloat16 and its like need the package ml_dtypes, which the "
            f"environment of process {os.getpid()} ({process_name(os.getpid()) or 'without a name'}) does not have: "
            f"if it is no misspelling, install it for {sys.executable}"
        )
    raise TypeError(f'dtype {value!r} is not known to numpy; expected a dtype such as "float32"')


def _has_ml_dtypes() -> bool:
    try:
        importlib.import_module("ml_dtypes")
    except ImportError:
        return False
    return True


def _ml_dtype(name: str) -> np.dtype[np.generic]:
    dtype: np.dtype[np.generic] = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    return dtype


def _shape_of(shape: Iterable[int | None]) -> tuple[int | None, ...]:
    try:
        sizes = tuple(shape)
    except TypeError:
        raise TypeError(f"shape is {shape!r}; expected a tuple of ints, such as (4,) or () for a scalar") from None
    return tuple(_size_of(size, sizes) for size in sizes)


def _size_of(size: object, shape: tuple[object, ...]) -> int | None:
    if size is None:
        return None
    try:
        number = operator.index(size)  # type: ignore[arg-type]  # checked here
    except TypeError:
        raise TypeError(f"shape is {shape!r}; expected a tuple of ints, such as (4,) or () for a scalar") from None
    if number < 0:
        raise ValueError(f"shape is {shape!r}; expected sizes >= 0")
    return number
