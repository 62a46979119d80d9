"""Converts values that callers pass to exact arrays of a signature's columns, and explains what does not fit.

This is the slow path: the native code takes what fits exactly, and leaves the rest to this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shmreplay.base.dtypes import is_added, number_kind
from shmreplay.columns.arrays import plain_array
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.specs import ArraySpec, refusal
from shmreplay.columns.structure import DictNode, LeafNode, Node, SeqNode, child_paths, kind_text, named_fields
from shmreplay.errors import SignatureMismatch

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Shape: TypeAlias = tuple[int | None, ...]
Batch: TypeAlias = int | tuple[int, ...] | None  # axes in front of a column's own: none, one, or several


class Missing:
    """Marks a column that is missing in a step."""


MISSING: Final = Missing()
IS_NONE: Final = Missing()  # marks a column whose value in the step is None


def flatten(node: Node, step: object, where: str, path: str = "") -> list[object]:
    """Returns the leaf values of `step` in column order, `MISSING` if a dict lacks the key, `IS_NONE` if the
    value is None.

    Lists and tuples are interchangeable; a named tuple may have any class with the same fields.

    Raises:
        SignatureMismatch: a dict has unknown keys, or the step has another structure than the signature.
    """
    if isinstance(node, LeafNode):
        return [IS_NONE if step is None else step]
    if step is MISSING or step is None:
        parts: list[object] = [MISSING] * len(node.children)
    elif isinstance(node, DictNode):
        parts = _dict_parts(node, step, where, path)
    else:
        parts = _seq_parts(node, step, where, path)
    values: list[object] = []
    for child, part, at in zip(node.children, parts, child_paths(node.names, len(node.children), path), strict=True):
        values += flatten(child, part, where, at)
    return values


def _dict_parts(node: DictNode, step: object, where: str, path: str) -> list[object]:
    if not isinstance(step, Mapping):
        raise SignatureMismatch(_structure_text(node, step, where, path))
    for key in step:
        if key not in node.keys:
            raise SignatureMismatch(
                f"{where}: unknown key {f'{path}/{key}' if path else key!r}; the signature has "
                f"{', '.join(map(repr, node.keys))} there; remove it, or declare a column for it"
            )
    return [step.get(key, MISSING) for key in node.keys]


def _seq_parts(node: SeqNode, step: object, where: str, path: str) -> list[object]:
    fits = isinstance(step, (list, tuple)) and len(step) == len(node.children)
    if not fits or (node.names and named_fields(step) != node.names):
        raise SignatureMismatch(_structure_text(node, step, where, path))
    return list(step)  # type: ignore[call-overload, no-any-return]  # a list or tuple, as just checked


def _structure_text(node: Node, step: object, where: str, path: str) -> str:
    at = f", {path!r}" if path else ""
    return f"{where}{at}: expected {kind_text(node)}, got {value_text(step)}"


def column_array(value: object, leaf: Leaf, where: str, batch: Batch, used: Rows | None = None) -> Array:
    """Returns `value` as a C-contiguous array of exactly the column's dtype and shape, the axes of `batch` in front.

    An axis of any size keeps the size passed. The result may share the caller's memory. A number that the dtype cannot
    hold is refused, whether it comes as a Python number, as a NumPy scalar or in an array, and whatever `np.seterr`
    says: a finite number never becomes infinite, and an integer never another one. (float4 and float6 have no infinity,
    and take their largest number.) In a batch this is about the rows `used`, their numbers; None: all.

    Raises:
        SignatureMismatch: it does not fit; the text names the column, what was expected, what it got and what to do.
    """
    spec = leaf.spec
    if type(value) is np.ndarray and value.dtype is spec.dtype and value.shape == _expected_shape(spec, batch):
        return np.ascontiguousarray(value) if value.ndim else value
    asked = Asked(leaf, where, batch, used)
    if isinstance(value, Missing):
        what = "is None" if value is IS_NONE else "missing from the step"
        raise SignatureMismatch(
            f"{asked.at}: {what}; expected {asked.expected}; only a partial append may leave a column out"
        )
    if isinstance(value, np.generic) or not isinstance(value, (bool, int, float, complex)):
        # A numpy scalar counts as a 0-d array, also np.float64, although it is a Python float, too.
        array = _as_array(value, asked)
        _check_shape(array, asked)
        _check_dtype(array, asked)
        return _cast(array, asked)
    if batch is not None or spec.shape:
        raise SignatureMismatch(
            f"{asked.at}: expected {asked.expected}, got {value_text(value)}; pass a numpy array of that shape"
        )
    return _number(value, asked)


@dataclass(frozen=True)
class Asked:
    """What a value must be: of this column, with these axes in front. Its texts are made when an error needs them.

    Attributes:
        used: numbers of the rows that must fit; None: all.
        lead: in texts, the name of an axis in front whose size may be any.
    """

    leaf: Leaf
    where: str
    batch: Batch
    used: Rows | None = None
    lead: str = ""

    @property
    def spec(self) -> ArraySpec:
        """The column's."""
        return self.leaf.spec

    @property
    def at(self) -> str:
        """The call and the column."""
        return f"{self.where}, column {self.leaf.path!r}"

    @property
    def expected(self) -> str:
        """Dtype and shape."""
        if self.lead:
            return f"{self.spec.dtype.name} {_lead_text(self.lead, self.spec)}"
        return expected_text(self.spec, self.batch)


def leading_axis(value: object, leaf: Leaf, where: str) -> int | None:
    """Returns the size of the first axis of a batch's column.

    None for an optional column that is missing. The value of a column in the heap may be a list.

    Raises:
        SignatureMismatch: the value has no leading axis, or is not an array.
    """
    if leaf.spec.in_heap and isinstance(value, (list, tuple)):
        return len(value)
    if leaf.is_whole_step:
        raise SignatureMismatch(f"{where}: expected a list of steps, got {value_text(value)}")
    if leaf.spec.optional and isinstance(value, Missing):
        return None
    asked = Asked(leaf, where, None, lead="N")
    if isinstance(value, Missing):
        what = "is None" if value is IS_NONE else "missing from the batch"
        raise SignatureMismatch(f"{asked.at}: {what}; expected {asked.expected}")
    shape = getattr(value, "shape", None)
    if shape is None:
        shape = () if isinstance(value, (bool, int, float, complex)) else _as_array(value, asked).shape
    if len(shape) == 0:
        raise SignatureMismatch(
            f"{asked.at}: expected {asked.expected}, got {value_text(value)}; a batch has a leading axis"
        )
    return int(shape[0])


def expected_text(spec: ArraySpec, batch: Batch) -> str:
    """Describes what a column accepts: `float32 (4,)`, or `float32 (32, 4)` in a batch of 32."""
    return f"{spec.dtype.name} {_expected_shape(spec, batch)}"


def value_text(value: object) -> str:
    """Describes what a caller passed: an array by dtype and shape, a number by its value, anything else by its type."""
    if isinstance(value, (np.ndarray, np.generic)):
        # A foreign byte order shows in the dtype's code only, not in its name.
        return f"{value.dtype.name if value.dtype.isnative else value.dtype.str} {value.shape}"
    if isinstance(value, (bool, int, float, complex)):
        return f"the Python {type(value).__name__} {_shorten(value)}"
    if isinstance(value, tuple) and (fields := named_fields(value)):
        return f"a named tuple {type(value).__name__}({', '.join(fields)})"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with the keys {', '.join(map(repr, value))}"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


def _shorten(value: complex) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python is willing to print
        text = hex(value)  # type: ignore[arg-type]
    return text if len(text) <= 40 else f"{text[:20]}...{text[-10:]} ({len(text)} characters)"


def _expected_shape(spec: ArraySpec, batch: Batch) -> Shape:
    lead = () if batch is None else (batch,) if isinstance(batch, int) else batch
    return (*lead, *spec.shape)


def _lead_text(lead: str, spec: ArraySpec) -> str:
    return f"({lead}, {', '.join(map(str, spec.shape))})" if spec.shape else f"({lead},)"


def _as_array(value: object, asked: Asked) -> Array:
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return np.asarray(value)  # only a signal handler can raise here
    if isinstance(value, (list, tuple)):
        raise SignatureMismatch(f"{asked.at}: expected {asked.expected}, got {value_text(value)}; pass a numpy array")
    device = getattr(value, "device", None)
    # numpy >= 2 has "cpu" for its own arrays; torch has device objects with a type, and also is_cuda.
    if getattr(device, "type", "cpu") != "cpu" or getattr(value, "is_cuda", False) is True:
        raise SignatureMismatch(
            f"{asked.at}: expected {asked.expected}, got {value_text(value)} on device {str(device)!r}; "
            "copy it to host memory first, with .cpu()"
        )
    if not (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        raise SignatureMismatch(f"{asked.at}: expected {asked.expected}, got {value_text(value)}; pass a numpy array")
    try:
        return plain_array(value)
    except Exception as error:  # whatever a foreign __array__ raises is part of the explanation
        raise SignatureMismatch(
            f"{asked.at}: expected {asked.expected}, got {value_text(value)} that numpy cannot read ({error}); pass a "
            "numpy array"
        ) from error


def _check_shape(array: Array, asked: Asked) -> None:
    spec, batch = asked.spec, asked.batch
    shape = _expected_shape(spec, batch)
    if array.ndim == len(shape) and all(b in (None, a) for a, b in zip(array.shape, shape, strict=True)):
        return
    if None in shape:
        remedy = f"pass one of shape {shape}, where None is any size, or declare the column with the other shape"
    elif array.size == math.prod(size or 0 for size in shape):
        remedy = f"bring it into shape with .reshape({shape})"
    elif batch is not None and array.shape[1:] == spec.shape:
        remedy = "every column of a batch has the same leading axis"
    else:
        remedy = f"pass one of shape {shape} or declare the column with the other shape"
    raise SignatureMismatch(f"{asked.at}: expected {asked.expected}, got {value_text(array)}; {remedy}")


def _check_dtype(array: Array, asked: Asked) -> None:
    spec = asked.spec
    problem = refusal(array.dtype)
    if problem is None and np.can_cast(array.dtype, spec.dtype, spec.cast):  # type: ignore[arg-type]
        return
    remedy = problem or f'convert it with .astype("{spec.dtype.name}")'
    if problem is None:
        casts: tuple[Literal["safe", "same_kind"], ...] = ("safe", "same_kind")
        for cast in casts:
            if np.can_cast(array.dtype, spec.dtype, cast):
                remedy += f' or declare the column with cast="{cast}"'
                break
    raise SignatureMismatch(f"{asked.at}: expected {asked.expected}, got {value_text(array)}; {remedy}")


def _cast(array: Array, asked: Asked) -> Array:
    """The array in the column's dtype, which `_check_dtype` allows. Refuses numbers beyond its range."""
    dtype = asked.spec.dtype
    with np.errstate(all="ignore"):
        cast: Array = np.asarray(array, dtype=dtype, order="C")
    if cast.dtype == array.dtype or number_kind(dtype) == "b":
        return cast
    kind = number_kind(dtype)
    if kind in "iu":
        low, high = _limits(dtype, kind)
        beyond = np.zeros(0, bool) if number_kind(array.dtype) == "b" else (array < low) | (array > high)
    else:
        beyond = np.isfinite(array) & ~np.isfinite(cast)
    places = np.argwhere(beyond)
    if asked.used is not None:
        places = places[np.isin(places[:, 0], asked.used)]
    if len(places):
        place = places[0].tolist()
        low, high = _limits(dtype, kind)
        at = f" at {tuple(place)}" if place else ""
        raise SignatureMismatch(
            f"{asked.at}: expected {asked.expected}, got {value_text(array)} with {array[tuple(place)]}{at}; it is "
            f"outside the dtype's range {low}..{high}; clip it, or declare the column with a wider dtype"
        )
    return cast


def _number(value: complex, asked: Asked) -> Array:
    """Converts a Python number. Kind and range decide whether it fits, not precision."""
    spec = asked.spec
    kind = number_kind(spec.dtype)
    if kind == "b" and not isinstance(value, bool):
        raise _unfit(value, asked, "pass True or False")
    if kind in "iu" and not isinstance(value, int):
        raise _unfit(value, asked, "pass an int, rounded the way you want")
    if kind == "f" and isinstance(value, complex):
        raise _unfit(value, asked, "pass its real part")
    low, high = _limits(spec.dtype, kind)
    if isinstance(value, int) and kind in "iu" and not low <= value <= high:
        raise _unfit(value, asked, f"it is outside the dtype's range {low}..{high}")
    try:
        with np.errstate(all="ignore"):
            number = float(value) if isinstance(value, int) and kind == "f" else value  # added dtypes take no large int
            array = np.asarray(number, dtype=spec.dtype)
            overflowed = kind in "fc" and bool(np.isfinite(value)) and not np.isfinite(array)
    except OverflowError:  # an int that no float holds
        overflowed = True
    if overflowed:
        raise _unfit(value, asked, f"it is outside the dtype's range {low}..{high}")
    return array


def _unfit(value: complex, asked: Asked, why: str) -> SignatureMismatch:
    return SignatureMismatch(f"{asked.at}: expected {asked.expected}, got {value_text(value)}; {why}")


def _limits(dtype: np.dtype[Any], kind: str) -> tuple[Any, Any]:
    if kind == "b":
        return False, True
    if kind in "iu":
        info = _ml_info("iinfo", dtype) if is_added(dtype) else np.iinfo(dtype)
        return int(info.min), int(info.max)
    info = _ml_info("finfo", dtype) if is_added(dtype) else np.finfo(dtype)
    return info.min, info.max


def _ml_info(name: str, dtype: np.dtype[Any]) -> Any:
    import ml_dtypes  # installed, since one of its dtypes is used

    return getattr(ml_dtypes, name)(dtype)
