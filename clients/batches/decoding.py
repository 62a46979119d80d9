"""Decoding: makes the arrays that a batch shows, from the core's arrays and from the stored bytes of the heap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shmreplay.base.checks import check_choice
from shmreplay.clients.batches.native import NativeBatch, NativeItem
from shmreplay.clients.batches.row_threads import for_each_row
from shmreplay.columns.codecs import ArrayCodec, Bytes, DamagedBytes
from shmreplay.columns.heap_values import split_item_values
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import Signature
from shmreplay.errors import SegmentFailed

Ragged: TypeAlias = Literal["pad", "concat"]
Stored: TypeAlias = Sequence[Bytes | None]


class Shown(NamedTuple):
    """What a batch shows of one output.

    In a `time_major` batch, shapes `[B, L, ...]` are `[L, B, ...]` instead.

    Attributes:
        data: an array `[B, ...]` or `[B, L, ...]`; in a table without a signature a list of steps, or of lists of them.
        has: bool `[B]` or `[B, L]`, True where there is a value; None: every row of the item has one.
        sizes: int32 `[B, k]` or `[B, L, k]`, the sizes of the k axes of any size; None if the shape is fixed.
    """

    data: Any
    has: NDArray[np.bool_] | None = None
    sizes: NDArray[np.int32] | None = None


def check_ragged(where: str, ragged: str, signature: Signature) -> None:
    """Raises ValueError if `ragged` is unknown, or if it is "concat" and a column's rows cannot be joined."""
    if ragged == "pad":
        return
    check_choice(where, "ragged", ragged, ("pad", "concat"))
    for leaf in signature.leaves:
        shape = leaf.spec.shape
        if None in shape and not leaf.is_whole_step and (shape[0] is not None or shape.count(None) > 1):
            raise ValueError(
                f"{where}: ragged='concat' joins rows along their first axis, but column {leaf.path!r} is {leaf.spec}; "
                "only its first axis may be of any size"
            )


def show(native: NativeBatch, done: int, signature: Signature, ragged: str, time_major: bool) -> list[Shown]:
    """The outputs of a batch's first `done` items, in the order of `native.columns`.

    In `native`, plain columns already have the order of axes to show, `[L, B, ...]` if `time_major`. Values of the heap
    always follow one another item by item.

    Raises:
        SegmentFailed: stored bytes are damaged.
    """
    _check_packed(native, signature)
    if not (signature.needs_decoding or time_major):
        return [Shown(data[:done]) for data in native.data]  # the usual case: nothing to decode
    brought = _item_values(native, done, signature) if signature.item_leaves else {}
    outputs: list[Shown] = []
    for column, data, squeezed in zip(native.columns, native.data, native.squeezed, strict=True):
        leaf, turns = signature.leaves[column], time_major and not squeezed
        if leaf.spec.is_per_item:
            outputs.append(_decoded(leaf, brought[column], (done,), ragged, signature))
        elif leaf.spec.is_coded:
            shown = _heap_output(leaf, data[0], data[1][:done], ragged, signature)
            outputs.append(_by_step(shown, ragged) if turns else shown)
        else:
            outputs.append(Shown(data[:, :done] if turns else data[:done]))
    return outputs


def show_item(native: NativeItem, signature: Signature) -> list[Shown]:
    """The outputs of one viewed item, without a leading axis; those of columns in the heap are read-only copies.

    Raises:
        SegmentFailed: stored bytes are damaged.
    """
    _check_packed(native, signature)
    brought: dict[int, list[Bytes | None]] = {}
    if signature.item_leaves:
        brought = _split_items([native.values], signature)
    outputs: list[Shown] = []
    for column, data in zip(native.columns, native.data, strict=True):
        leaf = signature.leaves[column]
        if leaf.spec.is_per_item:
            outputs.append(_only_item(_decoded(leaf, brought[column], (1,), "pad", signature)))
        elif leaf.spec.is_coded:
            outputs.append(_only_item(_heap_output(leaf, data[0], data[1][None], "pad", signature)))
        else:
            outputs.append(Shown(data))
    return outputs


def _check_packed(native: NativeBatch | NativeItem, signature: Signature) -> None:
    """Raises SegmentFailed if the core found stored bytes that are not those of a row."""
    if native.damage is not None:
        output, row, num_bytes = native.damage
        leaf = signature.leaves[native.columns[output]]
        error = DamagedBytes(
            f"{max(num_bytes, 0)} stored bytes of row {row} of a chunk that are no row of {leaf.spec.row_bytes}"
        )
        raise _damaged(signature, f"column {leaf.path!r}", error)


def _only_item(shown: Shown) -> Shown:
    data = shown.data[0]
    if isinstance(data, np.ndarray):
        data.flags.writeable = False
    # asarray: indexing an array of one axis gives a scalar.
    has = None if shown.has is None else np.asarray(shown.has[0])
    return Shown(data, has, None if shown.sizes is None else shown.sizes[0])


def mask_of(mask: NDArray[np.bool_] | None, shown: Shown, num_axes: int) -> NDArray[np.bool_]:
    """Where an output has a row and a value, bool of `num_axes` axes, which come before the axes of a row.

    `mask` says which rows are real; None: all of them.
    """
    if mask is None:
        return np.ones(shown.data.shape[:num_axes], np.bool_) if shown.has is None else shown.has
    return mask if shown.has is None else np.asarray(mask & shown.has)


def _heap_output(leaf: Leaf, stored: Bytes, sizes: NDArray[np.int64], ragged: str, signature: Signature) -> Shown:
    if leaf.spec.compression is None and None not in leaf.spec.shape:
        return _raw(leaf, stored, sizes, signature)
    return _decoded(leaf, _split(stored, sizes), sizes.shape, ragged, signature)


def _by_step(shown: Shown, ragged: str) -> Shown:
    """Moves the step axis to the front. Joined rows and lists of steps stay as they are."""
    is_turned = isinstance(shown.data, np.ndarray) and (ragged == "pad" or shown.sizes is None)
    return Shown(
        _turned(shown.data) if is_turned else shown.data,
        None if shown.has is None else _turned(shown.has),
        None if shown.sizes is None else _turned(shown.sizes),
    )


def _turned(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.swapaxes(0, 1))


def _raw(leaf: Leaf, stored: Bytes, sizes: NDArray[np.int64], signature: Signature) -> Shown:
    """As `_fixed`, for values that are stored as they are: all are copied at once."""
    spec, has = leaf.spec, sizes >= 0
    if not np.all(sizes[has] == spec.row_bytes):
        error = DamagedBytes(f"stored bytes of another size than {spec.row_bytes}")
        raise _damaged(signature, f"column {leaf.path!r}", error)
    data = np.zeros((*sizes.shape, *spec.least_shape), spec.dtype)
    count = int(np.count_nonzero(has))
    data[has] = stored[: count * spec.row_bytes].view(spec.dtype).reshape(count, *spec.least_shape)
    return Shown(data, has)


def _split(stored: Bytes, sizes: NDArray[np.int64]) -> list[Bytes | None]:
    """Divides bytes that follow one another into values of these sizes; None where the size is negative."""
    flat = sizes.reshape(-1)
    ends = np.cumsum(np.maximum(flat, 0))
    return [
        None if size < 0 else stored[end - size : end] for size, end in zip(flat.tolist(), ends.tolist(), strict=True)
    ]


def _item_values(native: NativeBatch, done: int, signature: Signature) -> dict[int, list[Bytes | None]]:
    """The values that the items of a batch brought, by column: one for each item, None where it brought none."""
    if native.values is None:
        return _split_items([None] * done, signature)
    return _split_items(_split(native.values[0], native.values[1][:done]), signature)


def _split_items(items: Stored, signature: Signature) -> dict[int, list[Bytes | None]]:
    leaves = signature.item_leaves
    nothing: list[Bytes | None] = [None] * len(leaves)
    try:
        rows = [nothing if item is None else split_item_values(item, len(leaves)) for item in items]
    except DamagedBytes as error:
        raise _damaged(signature, "values of items", error) from error
    return {leaf.index: [row[i] for row in rows] for i, leaf in enumerate(leaves)}


def _decoded(leaf: Leaf, stored: Stored, axes: tuple[int, ...], ragged: str, signature: Signature) -> Shown:
    try:
        if leaf.is_whole_step:
            return _steps(leaf, stored, axes)
        if None not in leaf.spec.shape:
            return _fixed(leaf, stored, axes)
        return _joined(leaf, stored, axes) if ragged == "concat" else _padded(leaf, stored, axes)
    except DamagedBytes as error:
        raise _damaged(signature, f"column {leaf.path!r}", error) from error


def _damaged(signature: Signature, what: str, error: DamagedBytes) -> SegmentFailed:
    return SegmentFailed(f"table {signature.table_name!r}, {what}: {error}; the heap is damaged")


def _steps(leaf: Leaf, stored: Stored, axes: tuple[int, ...]) -> Shown:
    has = _has(stored)
    steps = [None if value is None else leaf.codec.decode(value) for value in stored]
    if len(axes) == 1:
        return Shown(steps, has)
    num_items, rows = axes
    real = has.reshape(axes)
    items = [[steps[i * rows + j] for j in range(rows) if real[i, j]] for i in range(num_items)]
    return Shown(items, real)


def _fixed(leaf: Leaf, stored: Stored, axes: tuple[int, ...]) -> Shown:
    spec, codec = leaf.spec, _array_codec(leaf)
    rows = np.zeros((len(stored), *spec.least_shape), spec.dtype)

    def put(i: int) -> None:
        if (value := stored[i]) is not None:
            rows[i] = codec.decode(value)

    for_each_row(put, len(stored), rows.nbytes if spec.compression else 0)
    return Shown(rows.reshape(*axes, *spec.least_shape), _has(stored).reshape(axes))


def _padded(leaf: Leaf, stored: Stored, axes: tuple[int, ...]) -> Shown:
    rows = _arrays(leaf, stored)
    data, sizes = padded(leaf, rows)
    return Shown(data.reshape(*axes, *data.shape[1:]), _has(stored).reshape(axes), sizes.reshape(*axes, sizes.shape[1]))


def padded(leaf: Leaf, rows: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Puts rows of a column of variable shape into one array, padded with 0 to the longest.

    Returns:
        The array `[n, ...]` of the column's dtype, and int32 `[n, k]`: the sizes of each row's k axes of any size.
    """
    spec, sizes = leaf.spec, _sizes(leaf, rows)
    longest = sizes.max(axis=0, initial=0).tolist()
    shape = tuple(longest.pop(0) if size is None else size for size in spec.shape)
    data = np.zeros((len(rows), *shape), spec.dtype)
    for i, row in enumerate(rows):
        if row is not None:
            place: tuple[int | slice, ...] = (i, *(slice(size) for size in row.shape))
            data[place] = row
    return data, sizes


def _joined(leaf: Leaf, stored: Stored, axes: tuple[int, ...]) -> Shown:
    rows = _arrays(leaf, stored)
    none = np.empty(leaf.spec.least_shape, leaf.spec.dtype)
    data = np.concatenate([none, *(row for row in rows if row is not None)])
    return Shown(data, _has(stored).reshape(axes), _sizes(leaf, rows).reshape(*axes, 1))


def _arrays(leaf: Leaf, stored: Stored) -> list[NDArray[Any] | None]:
    """The decoded rows, each in its own shape; None where there is no value."""
    codec = _array_codec(leaf)
    rows: list[NDArray[Any] | None] = [None] * len(stored)

    def put(i: int) -> None:
        if (value := stored[i]) is not None:
            rows[i] = codec.decode(value)

    # Decompressing is worth several threads: assume four times the stored bytes. Other rows are not copied here.
    num_bytes = sum(value.size for value in stored if value is not None) if leaf.spec.compression else 0
    for_each_row(put, len(stored), 4 * num_bytes)
    return rows


def _sizes(leaf: Leaf, rows: Sequence[NDArray[Any] | None]) -> NDArray[np.int32]:
    free = [axis for axis, size in enumerate(leaf.spec.shape) if size is None]
    sizes = np.zeros((len(rows), len(free)), np.int32)
    for i, row in enumerate(rows):
        if row is not None:
            sizes[i] = [row.shape[axis] for axis in free]
    return sizes


def _has(stored: Stored) -> NDArray[np.bool_]:
    return np.array([value is not None for value in stored], np.bool_)


def _array_codec(leaf: Leaf) -> ArrayCodec:
    assert isinstance(leaf.codec, ArrayCodec)
    return leaf.codec
