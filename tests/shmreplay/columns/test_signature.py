"""Signature: columns with their paths, steps in and out, and its wire form."""

from __future__ import annotations

import collections
import copy
import pickle
import re
from typing import Any, NamedTuple

import ml_dtypes
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import SignatureMismatch

DTYPES = ["bool", "uint8", "int16", "uint16", "int64", "float16", "float32", "float64", "complex64", "bfloat16"]


class Pair(NamedTuple):
    """A named tuple of this module."""

    left: Any
    right: Any


SPECS = st.builds(
    ArraySpec,
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(DTYPES),
    cast=st.sampled_from(["safe", "same_kind", "no"]),
)
# No '/' and '[' in keys: two columns of one path are refused, by a test of their own.
KEYS = st.text(st.characters(exclude_characters="/[", exclude_categories=["Cs"]), min_size=1, max_size=4)
TREES = st.recursive(
    SPECS,
    lambda child: st.one_of(
        st.dictionaries(KEYS, child, min_size=1, max_size=3),
        st.lists(child, min_size=1, max_size=3),
        st.lists(child, min_size=1, max_size=3).map(tuple),
        st.builds(Pair, child, child),
    ),
    max_leaves=8,
)


@given(TREES)
def test_it_comes_back_from_its_wire_form(tree: Any) -> None:
    signature = Signature.from_tree(tree, "t")
    again = Signature.from_wire(msgpack.unpackb(msgpack.packb(signature.to_wire())), "t")
    assert again == signature
    assert again.leaves == signature.leaves
    assert again.specs == tree
    assert again.difference(signature) == []
    assert hash(again) == hash(signature)


@given(TREES, st.integers(0, 3) | st.none())
def test_what_fits_goes_through_unchanged(tree: Any, batch: int | None) -> None:
    signature = Signature.from_tree(tree, "t")
    lead = () if batch is None else (batch,)
    values = [np.ones(lead + leaf.spec.least_shape, leaf.spec.dtype) for leaf in signature.leaves]
    step = signature.unflatten(values)
    assert [a is b for a, b in zip(signature.flatten(step), values, strict=True)] == [True] * len(values)
    arrays = signature.canonical(step, batch=batch)
    assert all(array is not None and array.flags.c_contiguous for array in arrays)
    for array, value in zip(arrays, values, strict=True):
        assert array is not None
        assert array.dtype == value.dtype
        assert array.shape == value.shape
        assert array.tobytes() == value.tobytes()
    if batch is not None:
        assert signature.batch_size(step) == batch


@given(TREES)
def test_the_tree_has_the_columns_numbers_in_order(tree: Any) -> None:
    signature = Signature.from_tree(tree, "t")
    assert signature.flatten(signature.tree) == [leaf.index for leaf in signature.leaves]
    assert [leaf.index for leaf in signature.leaves] == list(range(len(signature.leaves)))


def test_columns_are_numbered_in_the_order_they_were_written() -> None:
    spec = ArraySpec((), "f4")
    signature = Signature.from_tree({"z": spec, "a": [spec, Pair(spec, spec)]}, "t")
    assert [leaf.path for leaf in signature.leaves] == ["z", "a[0]", "a[1]/left", "a[1]/right"]
    assert signature.tree == {"z": 0, "a": [1, Pair(2, 3)]}
    assert type(signature.tree["a"][1]) is Pair
    assert signature.native_plan()[:2] == ("dict", ("z", "a"))


def test_a_signature_may_be_a_single_column() -> None:
    signature = Signature.from_tree(ArraySpec((2,), "f4"), "t")
    assert signature.leaves == (Leaf("step", ArraySpec((2,), "f4"), 0),)
    assert signature.tree == 0
    assert signature.native_plan() == ("leaf", 0)
    with pytest.raises(
        SignatureMismatch, match=re.escape("table 't', column 'step': expected float32 (2,), got float32")
    ):
        signature.canonical(np.zeros(3, "f4"))


def test_two_columns_of_one_path_are_refused() -> None:
    spec = ArraySpec((), "f4")
    with pytest.raises(ValueError, match="table 't': the signature has two columns 'a/b'; rename a key"):
        Signature.from_tree({"a/b": spec, "a": {"b": spec}}, "t")


def test_more_columns_than_an_arena_has_are_refused_with_their_number() -> None:
    spec = ArraySpec((), "f4")
    assert len(Signature.from_tree([spec] * 125, "t").leaves) == 125
    with pytest.raises(
        ValueError, match="table 't': the signature has 126 columns; expected at most 125: join columns"
    ):
        Signature.from_tree([spec] * 126, "t")


def test_unflatten_wants_one_value_a_column() -> None:
    signature = Signature.from_tree({"a": ArraySpec((), "f4")}, "t")
    with pytest.raises(ValueError, match="table 't': got 2 values for 1 columns; expected as many"):
        signature.unflatten([1, 2])


def test_flatten_wants_every_column() -> None:
    signature = Signature.from_tree({"a": ArraySpec((), "f4"), "b": ArraySpec((), "f4")}, "t")
    with pytest.raises(SignatureMismatch, match="table 't', column 'b': missing; every column is needed here"):
        signature.flatten({"a": 1})


# --- partial steps --------------------------------------------------------------------------------------------------

ROW = Signature.from_tree(
    {"observation": {"camera": ArraySpec((2,), "u1"), "speed": ArraySpec((), "f4")}, "reward": ArraySpec((), "f4")},
    "replay",
)


def test_a_partial_step_may_leave_columns_out() -> None:
    present: set[int] = set()
    arrays = ROW.canonical({"observation": {"camera": np.zeros(2, "u1"), "speed": None}}, present=present)
    assert [array is None for array in arrays] == [False, True, True]
    assert present == {0}


def test_the_rest_of_a_row_may_come_later() -> None:
    present = {0}
    arrays = ROW.canonical({"observation": {"speed": 1.0}, "reward": 2.0}, present=present)
    assert [array is None for array in arrays] == [True, False, False]
    assert present == {0, 1, 2}


def test_a_column_comes_once_a_row() -> None:
    present = {1}
    text = "table 'replay', column 'observation/speed': the open row has it already; give each column once a row"
    with pytest.raises(SignatureMismatch, match=re.escape(text)):
        ROW.canonical({"observation": {"camera": np.zeros(2, "u1"), "speed": 1.0}}, present=present)
    assert present == {1}


def test_a_partial_step_that_does_not_fit_leaves_the_row_as_it_was() -> None:
    present = {1}
    with pytest.raises(SignatureMismatch, match=r"column 'reward': expected float32 \(\), got the Python complex 1j"):
        ROW.canonical({"observation": {"camera": np.zeros(2, "u1")}, "reward": 1j}, present=present)
    assert present == {1}


def test_a_whole_step_may_be_called_partial() -> None:
    present: set[int] = set()
    assert ROW.canonical(None, present=present) == [None, None, None]
    assert present == set()


# --- batches --------------------------------------------------------------------------------------------------------


def batch_of(camera: object, speed: object, reward: object) -> dict[str, Any]:
    return {"observation": {"camera": camera, "speed": speed}, "reward": reward}


@pytest.mark.parametrize("n", [0, 1, 7])
def test_the_batch_size_is_the_leading_axis_of_all_columns(n: int) -> None:
    assert ROW.batch_size(batch_of(np.zeros((n, 2), "u1"), np.zeros(n), np.zeros((n, 3)))) == n


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (
            batch_of(np.zeros((3, 2)), np.zeros(3), np.zeros(2)),
            "table 'replay': column 'observation/camera' has 3 rows and column 'reward' has 2; every column of a",
        ),
        (
            batch_of(np.zeros((3, 2)), np.float32(0), np.zeros(3)),
            "column 'observation/speed': expected float32 (N,), got float32 (); a batch has a leading axis",
        ),
        (
            batch_of(np.uint8(0), np.zeros(3), np.zeros(3)),
            "column 'observation/camera': expected uint8 (N, 2), got uint8 (); a batch has a leading axis",
        ),
        (
            batch_of(np.zeros((3, 2)), 0.5, np.zeros(3)),
            "column 'observation/speed': expected float32 (N,), got the Python float 0.5; a batch has a leading axis",
        ),
        (
            batch_of(np.zeros((3, 2)), [0.5, 1.0, 2.0], np.zeros(3)),
            "column 'observation/speed': expected float32 (N,), got a list of 3; pass a numpy array",
        ),
        (
            batch_of(np.zeros((3, 2)), None, np.zeros(3)),
            "column 'observation/speed': is None; expected float32 (N,)",
        ),
        (
            [{"reward": 1.0}],
            "table 'replay': expected a dict with the keys 'observation', 'reward', got a list of 1",
        ),
    ],
)
def test_a_batch_without_one_leading_axis_is_refused(batch: Any, text: str) -> None:
    with pytest.raises(SignatureMismatch, match=re.escape(text)):
        ROW.batch_size(batch)


# --- equality, difference, wire -------------------------------------------------------------------------------------


def test_equality_looks_at_columns_and_structure_and_not_at_the_tables_name() -> None:
    tree = {"a": ArraySpec((), "f4"), "b": [ArraySpec((), "f4")]}
    signature = Signature.from_tree(tree, "t")
    assert signature == Signature.from_tree(tree, "another")
    assert signature != Signature.from_tree({**tree, "b": (ArraySpec((), "f4"),)}, "t")
    assert signature != Signature.from_tree({**tree, "a": ArraySpec((), "f8")}, "t")
    assert signature != tree


def test_the_difference_is_told_by_path() -> None:
    there = Signature.from_tree(
        {
            "a": ArraySpec((4,), "f4"),
            "b": [ArraySpec((), "f4")],
            "c": ArraySpec((), "u1"),
            "d": Pair(np.int8(0), np.int8(0)),
        },
        "t",
    )
    asked = Signature.from_tree(
        {"a": ArraySpec((4,), "f8"), "b": (ArraySpec((), "f4"),), "c": ArraySpec((), "u1", cast="no"), "e": np.int8(0)},
        "t",
    )
    assert there.difference(asked) == [
        "structure at 'b': is a list of 1, asked for a tuple of 1",
        "structure at 'd': is a named tuple Pair(left, right), asked for without it",
        "column 'a': is float32 (4,), asked for float64 (4,)",
        "column 'c': is uint8 (), asked for uint8 () cast='no'",
        "column 'd/left': is int8 (), asked for without it",
        "column 'd/right': is int8 (), asked for without it",
        "column 'e': is not there, asked for int8 ()",
    ]
    assert there.difference(there) == []


def test_the_order_of_a_dicts_keys_is_no_difference() -> None:
    one = Signature.from_tree({"a": np.int8(0), "b": {"c": np.int8(0), "d": np.float32(0)}}, "t")
    two = Signature.from_tree({"b": {"d": np.float32(0), "c": np.int8(0)}, "a": np.int8(0)}, "t")
    assert one.difference(two) == []
    assert one != two  # but their columns have other numbers


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_it_can_be_pickled_and_copied_whatever_its_named_tuples(again: Any) -> None:
    Local = collections.namedtuple("Local", "x y")
    signature = Signature.from_tree(Local(np.int8(0), np.zeros(3, ml_dtypes.bfloat16)), "t")
    other = again(signature)
    assert other == signature
    assert other.table_name == "t"
    assert isinstance(other.tree, Local)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"columns": None}, "signature: malformed, columns is None; expected a list"),
        ({"columns": []}, "signature: malformed, 1 leaves but 0 columns"),
        ({"structure": ["leaf"], "columns": [{}]}, "column: malformed, expected a map with 'shape'"),
        ({"structure": ["set", [], [["leaf"]]]}, "signature: malformed structure"),
        ({"structure": ["dict", [""], [["leaf"]]]}, 'signature has the key ""; expected names that can be read'),
    ],
)
def test_a_malformed_wire_form_is_refused(change: dict[str, Any], text: str) -> None:
    wire = Signature.from_tree({"a": np.int8(0)}, "t").to_wire()
    with pytest.raises(ValueError, match=re.escape(text)):
        Signature.from_wire({**wire, **change}, "t")


@pytest.mark.parametrize("wire", [None, {}, {"columns": []}, []])
def test_a_wire_form_that_is_no_signature_is_refused(wire: Any) -> None:
    with pytest.raises(ValueError, match="signature: malformed, expected a map with"):
        Signature.from_wire(wire, "t")
