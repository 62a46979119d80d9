"""Decoding: batches of columns in the heap, from bytes and sizes as the core returns them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay.clients.batches import row_threads
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.decoding import check_ragged
from shmreplay.clients.batches.native import NativeBatch
from shmreplay.columns.heap_values import join_item_values
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import SegmentFailed

COLUMNS = {
    "n": ArraySpec((), "i8"),
    "image": ArraySpec((4, 3), "u1", compression="lz4", optional=True),
    "note": ArraySpec((2,), "bfloat16", optional=True),
    "points": ArraySpec((None, 3), "f4"),
    "goal": ArraySpec((2,), "f4", per="item", optional=True),
}
SIGNATURE = Signature.from_tree(COLUMNS, "replay")
FREE = Signature.free("free")


def packed(leaf: Leaf, values: list[Any], axes: tuple[int, ...]) -> tuple[Any, Any]:
    """What the core returns for these values; None means no value."""
    stored = [None if value is None else leaf.codec.encode(value) for value in values]
    sizes = np.array([-1 if value is None else value.size for value in stored], np.int64).reshape(axes)
    return np.concatenate([np.empty(0, np.uint8), *(value for value in stored if value is not None)]), sizes


def batch_of(signature: Signature, data: list[Any], masks: list[Any], done: int, **options: Any) -> Batch:
    """A batch of `done` items whose outputs are the signature's columns."""
    n = done + 1  # one more was asked for
    ints, floats = np.zeros(n, np.int64), np.ones(n)
    squeezed = [mask is None or mask.ndim == 1 for mask in masks]
    head = (b"", squeezed, range(len(data)), data, [np.zeros(n, np.int32)] * len(data), masks)
    values = options.pop("values", None)
    native = NativeBatch(*head, ints, floats, floats, ints, ints, ints, ints, ints, values, options.pop("damage", None))
    return Batch(native, done, signature, 0.0, **options)


def example(ragged: Any = "pad", values: Any = None, time_major: bool = False) -> tuple[Batch, dict[str, Any]]:
    """Two items of three rows, the last row of the second one padding, and a third item that was not drawn."""
    rng = np.random.default_rng(0)
    _, image, note, points, _ = SIGNATURE.leaves
    rows: dict[str, Any] = {
        "image": [rng.integers(0, 9, (4, 3), np.uint8) for _ in range(5)],
        "note": [None, np.array([1, 2], note.spec.dtype), None, np.array([3, 4], note.spec.dtype), None],
        "points": [rng.normal(size=(size, 3)).astype("f4") for size in (2, 0, 1, 4, 1)],
    }
    padding: list[Any] = [None] * 4
    ns = np.arange(9).reshape(3, 3)
    columns = [
        ns.T.copy() if time_major else ns,
        *(packed(leaf, rows[leaf.path] + padding, (3, 3)) for leaf in (image, note, points)),
        None,
    ]
    mask = np.array([[True, True, True], [True, True, False], [False, False, False]])
    mask = mask.T.copy() if time_major else mask
    options = {"ragged": ragged, "values": values, "time_major": time_major}
    batch = batch_of(SIGNATURE, columns, [mask, mask, mask, mask, None], 2, **options)
    return batch, rows


def test_compressed_rows_are_arrays_again_and_padding_is_zero() -> None:
    batch, rows = example()
    image = batch.data["image"]
    assert (image.dtype, image.shape) == (np.uint8, (2, 3, 4, 3))
    for i, row in enumerate(rows["image"]):
        np.testing.assert_array_equal(image[i // 3, i % 3], row)
    assert not image[1, 2].any()
    assert batch.mask["image"].tolist() == [[True, True, True], [True, True, False]]
    assert batch.data["n"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_a_step_left_out_is_zero_and_masked() -> None:
    batch, _ = example()
    assert batch.data["note"].astype("f4").tolist() == [[[0, 0], [1, 2], [0, 0]], [[3, 4], [0, 0], [0, 0]]]
    assert batch.mask["note"].tolist() == [[False, True, False], [True, False, False]]
    assert batch.mask["n"].tolist() == [[True, True, True], [True, True, False]]


def test_rows_of_any_size_are_padded_to_the_longest_of_the_batch() -> None:
    batch, rows = example()
    points = batch.data["points"]
    assert (points.dtype, points.shape) == (np.float32, (2, 3, 4, 3))
    assert batch.sizes["points"].tolist() == [[[2], [0], [1]], [[4], [1], [0]]]
    assert batch.sizes["points"].dtype == np.int32
    assert (batch.sizes["n"], batch.sizes["image"]) == (None, None)
    for i, row in enumerate(rows["points"]):
        np.testing.assert_array_equal(points[i // 3, i % 3, : len(row)], row)
        assert not points[i // 3, i % 3, len(row) :].any()
    assert batch.mask["points"].tolist() == [[True, True, True], [True, True, False]]


def test_rows_of_any_size_may_be_joined() -> None:
    batch, rows = example("concat")
    np.testing.assert_array_equal(batch.data["points"], np.concatenate(rows["points"]))
    assert batch.sizes["points"].tolist() == [[[2], [0], [1]], [[4], [1], [0]]]
    assert batch.data["image"].shape == (2, 3, 4, 3)


def test_the_step_axis_may_come_first() -> None:
    by_item, _ = example()
    by_step, rows = example(time_major=True)
    for name in ("n", "image", "note", "points"):
        np.testing.assert_array_equal(by_step.data[name], by_item.data[name].swapaxes(0, 1))
        np.testing.assert_array_equal(by_step.mask[name], by_item.mask[name].T)
        assert by_step.mask[name].shape == (3, 2)
    np.testing.assert_array_equal(by_step.sizes["points"], by_item.sizes["points"].swapaxes(0, 1))
    np.testing.assert_array_equal(by_step.data["goal"], by_item.data["goal"])
    joined, _ = example("concat", time_major=True)
    np.testing.assert_array_equal(joined.data["points"], np.concatenate(rows["points"]))
    assert joined.sizes["points"].shape == (3, 2, 1)


def test_a_repeated_first_step_has_its_value_and_is_masked() -> None:
    leaf = Leaf("x", ArraySpec((), "i4", optional=True), 0)
    signature = Signature.from_tree({"x": leaf.spec}, "t")
    data = packed(leaf, [np.array(7, "i4")] * 3 + [None], (2, 2))
    batch = batch_of(signature, [data], [np.array([[False, True], [True, True]])], 2)
    assert batch.data["x"].tolist() == [[7, 7], [7, 0]]
    assert batch.mask["x"].tolist() == [[False, True], [True, False]]


def test_what_items_brought_is_shown_without_a_step_axis() -> None:
    goal = SIGNATURE.leaves[4].codec
    items = [join_item_values([goal.encode(np.array([1, 2], "f4"))]), join_item_values([None])]
    batch, _ = example(values=(np.concatenate(items), np.array([items[0].size, items[1].size, -1])))
    assert batch.data["goal"].tolist() == [[1, 2], [0, 0]]
    assert batch.mask["goal"].tolist() == [True, False]
    nothing, _ = example()
    assert nothing.mask["goal"].tolist() == [False, False]


def test_steps_of_any_structure_are_lists_of_what_was_put_in() -> None:
    [leaf] = FREE.leaves
    steps: list[Any] = [{"a": 1}, (2, 3), "x", None, None]
    data = packed(leaf, [*steps[:3], None], (4,))
    assert batch_of(FREE, [data], [None], 3).data == steps[:3]
    rows = packed(leaf, [*steps[:3], None, None, None], (3, 2))
    mask = np.array([[True, True], [True, False], [False, False]])
    batch = batch_of(FREE, [rows], [mask], 2)
    assert batch.data == [[{"a": 1}, (2, 3)], ["x"]]
    assert batch.mask.tolist() == [[True, True], [True, False]]


def test_an_empty_batch_has_empty_columns() -> None:
    batch = Batch.empty(SIGNATURE)
    assert batch.data["image"].shape == (0, 4, 3)
    assert batch.data["points"].shape == (0, 0, 3)
    assert batch.data["goal"].shape == (0, 2)
    assert batch.mask["note"].tolist() == []
    assert Batch.empty(FREE).data == []


@given(st.integers(0, 40), st.integers(1, 7), st.integers(0, 2**32))
def test_many_rows_are_the_same_by_threads_or_without(num_rows: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = ArraySpec((size, None), "u2", compression="lz4")
    leaf, signature = Leaf("x", spec, 0), Signature.from_tree({"x": spec}, "t")
    rows = [rng.integers(0, 3, (size, rng.integers(0, 50)), np.uint16) for _ in range(num_rows)]
    data = packed(leaf, rows, (num_rows,))
    found = batch_of(signature, [data], [None], num_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_threads, "WORTH_BYTES", 0)
        patch.setattr(row_threads, "NUM_THREADS", 3)
        by_threads = batch_of(signature, [data], [None], num_rows)
    np.testing.assert_array_equal(found.data["x"], by_threads.data["x"])
    for row, shown, width in zip(rows, found.data["x"], found.sizes["x"][:, 0], strict=True):
        np.testing.assert_array_equal(shown[:, :width], row)
        assert width == row.shape[1]


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ArraySpec((3, None), "f4"), "only its first axis may be of any size"),
        (ArraySpec((None, None), "f4"), "column 'x' is float32 (None, None); only its first axis may be of any size"),
    ],
)
def test_only_rows_of_a_free_first_axis_can_be_joined(spec: ArraySpec, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        check_ragged("table 't'", "concat", Signature.from_tree({"x": spec}, "t"))
    check_ragged("table 't'", "pad", Signature.from_tree({"x": spec}, "t"))
    check_ragged("table 't'", "concat", SIGNATURE)
    check_ragged("table 't'", "concat", FREE)
    with pytest.raises(ValueError, match="table 't': ragged is 'list'; expected one of 'pad', 'concat'"):
        check_ragged("table 't'", "list", SIGNATURE)


def test_damaged_bytes_are_named_by_table_and_column() -> None:
    for column, sizes, text in (
        ("image", [3], "column 'image': 3 stored bytes that are no LZ4 block of 12"),
        ("note", [3], "column 'note': stored bytes of another size than 4"),
        ("points", [3], "column 'points': 3 stored bytes; expected 4 of a header at least"),
    ):
        signature = Signature.from_tree({column: COLUMNS[column]}, "replay")
        damaged = (np.full(3, 255, np.uint8), np.array(sizes, np.int64))
        with pytest.raises(SegmentFailed, match=re.escape(f"table 'replay', {text}")):
            _ = batch_of(signature, [damaged], [None], 1).data
    signature = Signature.from_tree({"x": ArraySpec((2,), "u1", compression="lz4")}, "replay")
    text = "table 'replay', column 'x': 7 stored bytes of row 4 of a chunk that are no row of 2; the heap is damaged"
    with pytest.raises(SegmentFailed, match=text):
        _ = batch_of(signature, [np.zeros((2, 2), np.uint8)], [None], 1, damage=(0, 4, 7)).data
    with pytest.raises(SegmentFailed, match="table 'replay', values of items: 2 stored bytes end within"):
        _ = example(values=(np.zeros(2, np.uint8), np.array([2, -1, -1])))[0].data
