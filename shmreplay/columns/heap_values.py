"""Converts values that callers pass for columns in the heap to the bytes stored there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shmreplay import _core
from shmreplay.columns import conversion
from shmreplay.columns.codecs import SIZE, Array, Bytes, DamagedBytes
from shmreplay.columns.conversion import IS_NONE, Missing
from shmreplay.columns.leaves import Leaf
from shmreplay.errors import SignatureMismatch

NO_VALUE_SIZE = 0xFFFFFFFF


def stored_value(value: object, leaf: Leaf, where: str) -> Bytes | None:
    """Returns the bytes of one value; None for an optional one that is missing.

    Raises:
        SignatureMismatch: it does not fit; the text names the column, what was expected, what it got and what to do.
    """
    if leaf.is_whole_step:
        return _encoded(None if value is IS_NONE else value, leaf, where)
    if isinstance(value, Missing) and leaf.spec.optional:
        return None
    array = conversion.column_array(value, leaf, where, None)
    return _encoded(array, leaf, f"{where}, column {leaf.path!r}")


def stored_values(values: object, leaf: Leaf, where: str, count: int) -> list[Bytes | None]:
    """Returns the bytes of the values of a batch, which is an array with a leading axis or a list.

    Raises:
        SignatureMismatch: one does not fit.
    """
    if isinstance(values, Missing) and leaf.spec.optional:
        return [None] * count
    if isinstance(values, (list, tuple)):
        _check_count(values, leaf, where, count)
        if (rows := _encoded_at_once(values, leaf)) is not None:
            return rows
        return [
            stored_value(IS_NONE if value is None else value, leaf, f"{where}, step {i} of the batch")
            for i, value in enumerate(values)
        ]
    array = conversion.column_array(values, leaf, where, count)
    if (rows := _encoded_at_once(array, leaf)) is not None:
        return rows
    return [_encoded(row, leaf, f"{where}, column {leaf.path!r}") for row in array]


def _encoded_at_once(values: object, leaf: Leaf) -> list[Bytes | None] | None:
    """What `stored_values` returns, made by the core; None if one of the values is not plainly a row of the column."""
    spec = leaf.spec
    if spec.compression is not None or leaf.is_whole_step:
        return None
    return _core.encode_rows(values, spec.dtype, spec.shape)


def stacked(values: Sequence[object], leaf: Leaf, where: str, count: int) -> Array:
    """Returns the rows of a batch, given as a list with one for each step, as an array `[count, *shape]`.

    Raises:
        SignatureMismatch: one does not fit, or their number is wrong.
    """
    _check_count(values, leaf, where, count)
    rows = np.empty((count, *leaf.spec.least_shape), leaf.spec.dtype)
    for i, value in enumerate(values):
        value = IS_NONE if value is None else value
        rows[i] = conversion.column_array(value, leaf, f"{where}, step {i} of the batch", None)
    return rows


def _check_count(values: Sequence[object], leaf: Leaf, where: str, count: int) -> None:
    if len(values) != count:
        raise SignatureMismatch(
            f"{where}, column {leaf.path!r}: {len(values)} values for {count} steps; expected one a step"
        )


def join_item_values(values: Sequence[Bytes | None]) -> Bytes:
    """Joins an item's values of all its per-item columns into the bytes to store: size and bytes of each value."""
    parts: list[Bytes] = []
    for value in values:
        size = NO_VALUE_SIZE if value is None else value.size
        parts.append(np.array([size], SIZE).view(np.uint8))
        if value is not None:
            parts.append(value)
    return np.concatenate(parts)


def split_item_values(stored: Bytes, count: int) -> list[Bytes | None]:
    """Returns what `join_item_values` was given, `count` values; they share the memory of `stored`.

    Raises:
        DamagedBytes: these are not the bytes of `count` values.
    """
    values: list[Bytes | None] = []
    at = 0
    for _ in range(count):
        if stored.size - at < SIZE.itemsize:
            raise DamagedBytes(f"{stored.size} stored bytes end within the values of an item")
        size = int(stored[at : at + SIZE.itemsize].view(SIZE)[0])
        at += SIZE.itemsize
        if size == NO_VALUE_SIZE:
            values.append(None)
            continue
        if stored.size - at < size:
            raise DamagedBytes(f"{stored.size} stored bytes end within a value of {size}")
        values.append(stored[at : at + size])
        at += size
    if at != stored.size:
        raise DamagedBytes(f"{stored.size} stored bytes for values of {at}")
    return values


def _encoded(value: object, leaf: Leaf, where: str) -> Bytes:
    try:
        return leaf.codec.encode(value)  # type: ignore[arg-type]  # an array, unless the codec takes any step
    except ValueError as error:
        raise SignatureMismatch(f"{where}: {error}") from error
