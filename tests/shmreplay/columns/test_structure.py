"""Structure: nested dicts, lists, tuples and named tuples, without any notion of what a leaf is."""

from __future__ import annotations

import collections
import itertools
import pickle
import re
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmreplay.columns import structure
from shmreplay.columns.structure import DictNode, LeafNode, Node, SeqNode


class Pair(NamedTuple):
    """A named tuple of this module."""

    left: Any
    right: Any


KEYS = st.text(min_size=1, max_size=4)
TREES = st.recursive(
    st.just("leaf"),
    lambda child: st.one_of(
        st.dictionaries(KEYS, child, min_size=1, max_size=3),
        st.lists(child, min_size=1, max_size=3),
        st.lists(child, min_size=1, max_size=3).map(tuple),
        st.builds(Pair, child, child),
    ),
    max_leaves=12,
)


def parsed(tree: object) -> tuple[Node, list[str]]:
    paths: list[str] = []

    def add_leaf(leaf: object, path: str) -> int:
        paths.append(path)
        return len(paths) - 1

    return structure.parse(tree, add_leaf, "table 't'"), paths


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for child in tree.values() for leaf in leaves(child)]
    if isinstance(tree, (list, tuple)):
        return [leaf for child in tree for leaf in leaves(child)]
    return [tree]


@given(TREES)
def test_unflatten_puts_every_leaf_back_in_its_place(tree: Any) -> None:
    node, paths = parsed(tree)
    again = structure.unflatten(node, ["leaf"] * len(paths))
    assert again == tree
    assert type(again) is type(tree)
    assert leaves(structure.unflatten(node, range(len(paths)))) == list(range(len(paths)))


@given(TREES)
def test_the_wire_form_goes_through_msgpack_and_back(tree: Any) -> None:
    node, _ = parsed(tree)
    again = structure.from_wire(msgpack.unpackb(msgpack.packb(structure.to_wire(node))), itertools.count())
    assert again == node  # and so in the same class of named tuples, which this process has used


def test_paths_name_keys_fields_and_elements() -> None:
    _, paths = parsed({"observation": {"camera": [0, 1]}, "pair": Pair(0, (0,))})
    assert paths == ["observation/camera[0]", "observation/camera[1]", "pair/left", "pair/right[0]"]
    assert parsed([0, {"a": 0}])[1] == ["[0]", "[1]/a"]
    assert parsed(0)[1] == [""]


def test_the_native_plan_is_made_of_plain_tuples() -> None:
    node, _ = parsed({"a": [0, (0,)], "b": Pair(0, 0)})
    assert structure.native_plan(node) == (
        "dict",
        ("a", "b"),
        (
            ("seq", "list", (("leaf", 0), ("seq", "tuple", (("leaf", 1),)))),
            ("seq", Pair, (("leaf", 2), ("leaf", 3))),
        ),
    )


def test_the_keys_of_a_dict_stay_in_the_order_they_were_written() -> None:
    node, paths = parsed({"z": 0, "a": 0})
    assert paths == ["z", "a"]
    assert list(structure.unflatten(node, [1, 2])) == ["z", "a"]


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({}, "table 't': signature is an empty dict; expected at least one column"),
        ([], "table 't': signature is an empty list; expected at least one column"),
        ((), "table 't': signature is an empty tuple; expected at least one column"),
        ({"a": {"b": {}}}, "table 't': signature at 'a/b' is an empty dict; expected at least one column"),
        ({"a": [()]}, "table 't': signature at 'a[0]' is an empty tuple; expected at least one column"),
        ({"": 0}, "table 't': signature has the key \"\"; expected names that can be read"),
    ],
)
def test_an_empty_part_is_refused(tree: object, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parsed(tree)


@pytest.mark.parametrize("key", [1, None, b"a", ("a",)])
def test_a_key_that_is_no_str_is_refused(key: object) -> None:
    with pytest.raises(TypeError, match=re.escape(f"signature at 'a' has the key {key!r}; expected keys of type str")):
        parsed({"a": {key: 0}})


def test_a_tree_that_contains_itself_is_refused() -> None:
    tree: dict[str, Any] = {}
    tree["a"] = [tree]
    with pytest.raises(ValueError, match="table 't': signature is nested deeper than 64 levels; make it flatter"):
        parsed(tree)


def test_nodes_are_described_for_error_texts() -> None:
    node, _ = parsed({"a": [0], "b": Pair(0, 0), "c": (0, 0)})
    assert isinstance(node, DictNode)
    assert structure.kind_text(node) == "a dict with the keys 'a', 'b', 'c'"
    texts = [structure.kind_text(child) for child in node.children]
    assert texts == ["a list of 1", "a named tuple Pair(left, right)", "a tuple of 2"]
    assert structure.kind_text(LeafNode(0)) == "one column"


DEEP: list[Any] = ["leaf"]
for _ in range(structure.MAX_DEPTH + 1):
    DEEP = ["list", [], [DEEP]]


@pytest.mark.parametrize(
    "wire",
    [
        None,
        "leaf",
        [],
        ["leaf", 1],
        ["set", [], [["leaf"]]],
        ["list", [], []],
        ["list", ["a"], [["leaf"]]],
        ["dict", ["a"], [["leaf"], ["leaf"]]],
        ["dict", ["a", "a"], [["leaf"], ["leaf"]]],
        ["dict", [1], [["leaf"]]],
        ["namedtuple", ["P", "a"], [["leaf"], ["leaf"]]],
        ["namedtuple", ["P", 1], [["leaf"]]],
        ["namedtuple", [], [["leaf"]]],
        [["list"], [], [["leaf"]]],
        DEEP,
    ],
)
def test_a_malformed_wire_form_is_refused(wire: object) -> None:
    with pytest.raises(ValueError, match="signature: malformed structure"):
        structure.from_wire(wire, itertools.count())


@pytest.mark.parametrize("names", [["P", "not a name"], ["P", "class"], ["P", "_a"], ["import os", "a"]])
def test_a_named_tuple_whose_names_are_no_names_is_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"(valid identifiers|keyword|underscore)"):
        structure.from_wire(["namedtuple", names, [["leaf"]] * (len(names) - 1)], itertools.count())


def test_a_named_tuple_unknown_here_is_made_once_and_can_be_pickled() -> None:
    wire = ["namedtuple", ["FromElsewhere", "x", "y"], [["leaf"], ["leaf"]]]
    nodes = [structure.from_wire(wire, itertools.count()) for _ in range(2)]
    assert nodes[0] == nodes[1]
    value = structure.unflatten(nodes[0], [1, 2])
    assert value._asdict() == {"x": 1, "y": 2}
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert type(again) is type(value)


def test_a_named_tuple_of_this_process_comes_back_in_the_class_used_last() -> None:
    # As in a notebook whose cell is run again: the class is new, its name and fields are not.
    make: Any = collections.namedtuple
    classes = [make("Again", "x") for _ in range(2)]
    for kind in classes:
        wire = structure.to_wire(parsed(kind(0))[0])
        node = structure.from_wire(wire, itertools.count())
        assert isinstance(node, SeqNode)
        assert node.kind is kind


@given(TREES)
def test_leaves_have_the_paths_that_errors_name_them_by(tree: object) -> None:
    node, paths = parsed(tree)
    assert list(structure.leaf_paths(node)) == paths


def test_a_pruned_structure_keeps_what_is_asked_for_in_its_order() -> None:
    node, _ = parsed({"a": {"b": 0, "c": [0, 0]}, "d": Pair(0, 0)})
    pruned = structure.prune(node, {2: 0, 4: 1})
    assert pruned is not None
    kept = structure.unflatten(pruned, ["c[1]", "right"])
    assert kept == {"a": {"c": ["c[1]"]}, "d": ("right",)}
    assert kept["d"]._fields == ("right",)
    assert structure.prune(node, {i: i for i in range(5)}) == node
    assert structure.prune(node, {}) is None
