"""Heap values: what steps and items bring for columns in the heap, as a signature converts it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay.columns.codecs import ArrayCodec, Bytes
from shmreplay.columns.heap_values import join_item_values, split_item_values
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec
from shmreplay.columns.step_codec import StepCodec
from shmreplay.errors import SignatureMismatch

POINTS = ArraySpec((None, 3), "f4", cast="same_kind")
NOTE = ArraySpec((2,), "i4", optional=True)
GOAL = ArraySpec((2,), "f4", per="item")
HINT = ArraySpec((), "i8", per="item", optional=True)
SIGNATURE = Signature.from_tree(
    {"n": ArraySpec((), "i8"), "points": POINTS, "note": NOTE, "goal": GOAL, "hint": HINT}, "replay"
)
FREE = Signature.free("free")


def step(**changes: Any) -> dict[str, Any]:
    return {"n": 1, "points": np.ones((4, 3), "f4"), **changes}


def split(blob: Bytes | None) -> list[Bytes]:
    """What an item brought, of which there is nothing that it did not."""
    assert blob is not None
    return [value for value in split_item_values(blob, 2) if value is not None]


def refused(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(SignatureMismatch) as caught:
        call(*arguments, **options)
    return str(caught.value)


# --- steps ----------------------------------------------------------------------------------------------------------


def test_a_step_brings_bytes_for_the_heap_and_nothing_for_items() -> None:
    n, points, note, goal, hint = SIGNATURE.canonical(step(note=np.array([1, 2], "i4")))
    assert n == 1
    assert ArrayCodec(POINTS).decode(points).tolist() == np.ones((4, 3)).tolist()
    assert ArrayCodec(NOTE).decode(note).tolist() == [1, 2]
    assert (goal, hint) == (None, None)


@pytest.mark.parametrize("absent", [step(), step(note=None)])
def test_a_step_may_leave_an_optional_column_out(absent: dict[str, Any]) -> None:
    assert SIGNATURE.canonical(absent)[2] is None


def test_an_axis_of_any_size_may_be_empty_and_is_converted_by_the_cast_rule() -> None:
    empty = SIGNATURE.canonical(step(points=np.zeros((0, 3))))[1]
    assert ArrayCodec(POINTS).decode(empty).shape == (0, 3)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"points": np.zeros((4, 2), "f4")},
            "column 'points': expected float32 (None, 3), got float32 (4, 2); pass one of shape (None, 3), where None "
            "is any size, or declare the column with the other shape",
        ),
        ({"points": np.zeros(3, "f4")}, "column 'points': expected float32 (None, 3), got float32 (3,); pass one of"),
        ({"points": np.zeros((1, 3), "c8")}, "column 'points': expected float32 (None, 3), got complex64 (1, 3); conv"),
        ({"points": [[1, 2, 3]]}, "column 'points': expected float32 (None, 3), got a list of 1; pass a numpy array"),
        ({"points": None}, "column 'points': is None; expected float32 (None, 3)"),
        ({"note": np.zeros(3, "i4")}, "column 'note': expected int32 (2,), got int32 (3,)"),
        ({"goal": np.zeros(2, "f4")}, "column 'goal': is per item, so steps do not have it; pass it to create_item"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_by_the_columns_name(changes: dict[str, Any], text: str) -> None:
    assert text in refused(SIGNATURE.canonical, step(**changes))


def test_a_partial_step_lacks_what_it_leaves_out_optional_or_not() -> None:
    present: set[int] = set()
    assert SIGNATURE.canonical({"n": 1}, present=present)[1:] == [None] * 4
    assert present == {0}
    SIGNATURE.canonical({"note": np.zeros(2, "i4")}, present=present)
    assert present == {0, 2}
    text = refused(SIGNATURE.canonical, {"note": np.zeros(2, "i4")}, present=present)
    assert "column 'note': the open row has it already" in text


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_brings_the_bytes_of_each_step() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3, 5, 3)).astype("f4")
    steps = {"n": np.arange(3), "points": points, "note": np.arange(6, dtype="i4").reshape(3, 2)}
    assert SIGNATURE.batch_size(steps) == 3
    found = SIGNATURE.canonical(steps, batch=3)
    assert [ArrayCodec(POINTS).decode(row).tobytes() for row in found[1]] == [row.tobytes() for row in points]
    assert [ArrayCodec(NOTE).decode(row).tolist() for row in found[2]] == [[0, 1], [2, 3], [4, 5]]


def test_a_batch_may_have_rows_of_different_sizes_in_a_list() -> None:
    rows = [np.zeros((size, 3), "f4") for size in (2, 0, 5)]
    steps = {"points": rows, "n": np.arange(3), "note": [None, np.array([1, 2], "i4"), None]}
    assert SIGNATURE.batch_size(steps) == 3
    found = SIGNATURE.canonical(steps, batch=3)
    assert [ArrayCodec(POINTS).decode(row).shape for row in found[1]] == [(2, 3), (0, 3), (5, 3)]
    assert [row is None for row in found[2]] == [True, False, True]
    assert SIGNATURE.canonical({**steps, "note": None}, batch=3)[2] == [None] * 3


def test_a_batch_that_does_not_fit_is_refused_by_step_and_column() -> None:
    steps = {"n": np.arange(2), "points": [np.zeros((1, 3), "f4"), np.zeros((1, 4), "f4")]}
    text = refused(SIGNATURE.canonical, steps, batch=2)
    assert text.startswith("table 'replay', step 1 of the batch, column 'points': expected float32 (None, 3), got")
    text = refused(SIGNATURE.canonical, {**steps, "points": [None, None]}, batch=2)
    assert "step 0 of the batch, column 'points': is None" in text
    fewer = [np.zeros((1, 3), "f4")]
    text = refused(SIGNATURE.batch_size, {**steps, "points": fewer})
    assert "column 'n' has 2 rows and column 'points' has 1" in text
    text = refused(SIGNATURE.canonical, {**steps, "points": fewer}, batch=2)
    assert "column 'points': 1 values for 2 steps; expected one a step" in text
    text = refused(SIGNATURE.batch_size, {**steps, "goal": np.zeros((3, 2), "f4")}, with_items=True)
    assert "column 'n' has 2 rows and column 'goal' has 3" in text
    assert "column 'goal': missing from the batch" in refused(SIGNATURE.batch_size, steps, with_items=True)
    only = Signature.from_tree({"note": NOTE}, "t")
    assert "no column says how many steps there are" in refused(only.batch_size, {})


# --- items ----------------------------------------------------------------------------------------------------------


def test_an_item_brings_its_values_in_the_signatures_structure() -> None:
    [goal] = split(SIGNATURE.item_values({"goal": np.array([1, 2], "f4")}))
    assert ArrayCodec(GOAL).decode(goal).tolist() == [1, 2]
    goal, hint = split(SIGNATURE.item_values({"goal": np.zeros(2, "f4"), "hint": 7}))
    assert ArrayCodec(HINT).decode(hint) == 7


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (None, "column 'goal': missing; each item needs one float32 (2,) per='item'; pass it in values={...}, or"),
        ({}, "column 'goal': missing; each item needs one"),
        ({"goal": None}, "column 'goal': missing; each item needs one"),
        ({"goal": np.zeros(3, "f4")}, "column 'goal': expected float32 (2,), got float32 (3,)"),
        (
            {"goal": np.zeros(2, "f4"), "n": 3},
            "values= has column 'n', which steps have; expected those that are per item",
        ),
        ({"target": 3}, "unknown key 'target'; the signature has"),
    ],
)
def test_values_that_an_item_cannot_bring_are_refused(values: Any, text: str) -> None:
    assert text in refused(SIGNATURE.item_values, values)


def test_a_table_without_such_columns_takes_no_values() -> None:
    plain = Signature.from_tree({"n": ArraySpec((), "i8")}, "t")
    assert plain.item_values(None) is None
    assert plain.item_values({"n": 1}, with_steps=True) is None
    assert "which steps have; the table has none that are per item" in refused(plain.item_values, {"n": 1})
    assert plain.batch_item_values({"n": np.zeros(2, "i8")}, 2) is None


def test_a_step_that_is_an_item_brings_both() -> None:
    both = step(goal=np.array([3, 4], "f4"))
    assert SIGNATURE.canonical(both, with_items=True)[3] is None
    [goal] = split(SIGNATURE.item_values(both, with_steps=True))
    assert ArrayCodec(GOAL).decode(goal).tolist() == [3, 4]
    batch = {"n": np.arange(2), "points": np.zeros((2, 1, 3), "f4"), "goal": np.array([[1, 2], [3, 4]], "f4")}
    blobs = SIGNATURE.batch_item_values(batch, 2)
    assert blobs is not None
    assert [ArrayCodec(GOAL).decode(split(blob)[0]).tolist() for blob in blobs] == [[1, 2], [3, 4]]


@given(st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=5))
def test_the_values_of_an_item_are_stored_as_one_and_split_again(values: list[bytes | None]) -> None:
    stored = join_item_values([None if value is None else np.frombuffer(value, np.uint8) for value in values])
    found = split_item_values(stored, len(values))
    assert [None if value is None else value.tobytes() for value in found] == values


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (b"\x01\0\0", "3 stored bytes end within the values of an item"),
        (b"\x05\0\0\0\1\2", "6 stored bytes end within a value of 5"),
        (b"\x01\0\0\0\1\2", "6 stored bytes for values of 5"),
    ],
)
def test_bytes_that_are_no_values_are_refused(stored: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        split_item_values(np.frombuffer(stored, np.uint8), 1)


# --- without a signature --------------------------------------------------------------------------------------------


def decoded(stored: Bytes) -> Any:
    return StepCodec().decode(stored)


def test_a_table_without_a_signature_takes_steps_of_any_structure() -> None:
    assert decoded(FREE.canonical({"a": (1, [2.5])})[0]) == {"a": (1, [2.5])}
    assert decoded(FREE.canonical(None)[0]) is None
    found = FREE.canonical([1, {"b": "x"}, None], batch=3)[0]
    assert [decoded(row) for row in found] == [1, {"b": "x"}, None]
    assert FREE.batch_size([1, 2, 3]) == 3


def test_what_it_cannot_store_is_named_by_its_path() -> None:
    assert refused(FREE.canonical, {"a": {1}}) == (
        "table 'free': a is of type set; expected numbers, bools, None, str, bytes, numpy arrays, and lists, tuples "
        "and dicts of them"
    )
    assert "step 1 of the batch: b is of type set" in refused(FREE.canonical, [1, {"b": {1}}], batch=2)
    assert "expected a list of steps, got int64 (3,)" in refused(FREE.batch_size, np.arange(3))


def test_it_has_no_specs_and_comes_back_from_its_wire_form() -> None:
    made = Signature.free("t", 200)
    assert made.specs is None
    assert made.is_free
    assert Signature.from_wire(made.to_wire(), "t") == made != FREE
    assert FREE.difference(SIGNATURE)[0] == "column 'step': is a step of any structure, asked for without it"


@pytest.mark.parametrize("columns", [[], [GOAL.to_wire(), NOTE.to_wire(), NOTE.to_wire()], None])
def test_a_malformed_wire_form_of_it_is_refused(columns: Any) -> None:
    if columns == []:
        assert Signature.from_wire({"structure": None, "columns": []}, "t") == FREE
        return
    with pytest.raises((TypeError, ValueError)):
        Signature.from_wire({"structure": None, "columns": columns}, "t")


def test_a_signature_of_nothing_but_what_items_bring_is_refused() -> None:
    with pytest.raises(ValueError, match="table 't': every column is per item; expected at least one column"):
        Signature.from_tree({"goal": GOAL}, "t")
