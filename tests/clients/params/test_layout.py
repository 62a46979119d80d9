"""Where the arrays of a tree lie in a version: a column an array, or joined by dtype where these are too many."""

from typing import Any

import numpy as np
import pytest

from shmreplay.clients.params.layout import MAX_ARRAYS, ParamsLayout
from shmreplay.columns.signature import Signature


def few() -> dict[str, Any]:
    return {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": [np.array(7, np.int64), np.ones(2, np.uint8)]}


def many(number: int = MAX_ARRAYS + 1) -> list[Any]:
    dtypes = (np.float32, np.int8)
    return [np.full((i % 3, 2), i % 100, dtypes[i % 2]) for i in range(number)]


@pytest.mark.parametrize("tree", [few(), many(MAX_ARRAYS), many()])
def test_a_tree_comes_back_out_of_its_step(tree: Any) -> None:
    layout = ParamsLayout.of_tree(tree, "policy")
    arrays = leaves_of(tree)
    steps = layout.steps(arrays, 5)
    step = {name: first_row(column) for name, column in steps.items()}
    found = leaves_of(layout.tree(step))
    assert len(found) == len(arrays)
    for mine, theirs in zip(found, leaves_of(tree), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def leaves_of(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves_of(tree[name])]
    return [leaf for part in tree for leaf in leaves_of(part)] if isinstance(tree, (list, tuple)) else [tree]


def first_row(column: Any) -> Any:
    if isinstance(column, dict):
        return {name: first_row(part) for name, part in column.items()}
    return type(column)(map(first_row, column)) if isinstance(column, (list, tuple)) else column[0]


def test_joined_arrays_begin_at_borders_of_64_bytes() -> None:
    layout = ParamsLayout.of_tree(many(), "policy")
    assert layout._places
    for leaf, place in zip(layout.leaves, layout._places, strict=True):
        assert place.start * leaf.spec.dtype.itemsize % 64 == 0


def test_a_table_with_joined_arrays_wants_the_tree_it_was_made_for() -> None:
    signature = Signature.from_tree(ParamsLayout.of_tree(many(), "policy").signature(), "policy")
    assert ParamsLayout.of_table(signature, many()) is not None
    with pytest.raises(ValueError, match="has more arrays than columns, so it does not know the tree"):
        ParamsLayout.of_table(signature, None)
    with pytest.raises(ValueError, match="like is another tree than the table was made for"):
        ParamsLayout.of_table(signature, many()[::-1])


def test_other_tables_have_no_versions() -> None:
    assert ParamsLayout.of_table(Signature.from_tree({"x": np.zeros(3)}, "replay"), None) is None
