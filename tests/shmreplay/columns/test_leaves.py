"""What can stand for a column: specs of gymnasium, dm_env and tensor libraries, known by their shape and dtype."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import gymnasium
import ml_dtypes
import numpy as np
import pytest

from shmreplay import _core
from shmreplay.columns.leaves import HEAP, MUTABLE, PER_ITEM, Leaf, as_spec
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec

spaces = gymnasium.spaces


class ForeignDtype:
    """A dtype that numpy cannot read, as torch has them."""

    def __str__(self) -> str:
        return "torch.bfloat16"


@pytest.mark.parametrize(
    ("leaf", "spec"),
    [
        (ArraySpec((4,), "f4", cast="no"), ArraySpec((4,), "f4", cast="no")),
        (np.zeros((2, 3), "u1"), ArraySpec((2, 3), "u1")),
        (np.zeros((0, 3)), ArraySpec((0, 3), "f8")),
        (np.float32(1), ArraySpec((), "f4")),
        (np.float32, ArraySpec((), "f4")),
        (np.dtype("i2"), ArraySpec((), "i2")),
        (np.zeros(2, ml_dtypes.bfloat16), ArraySpec((2,), "bfloat16")),
        (SimpleNamespace(shape=[3], dtype=ForeignDtype()), ArraySpec((3,), "bfloat16")),
        (SimpleNamespace(shape=(3,), dtype=np.int32, name="as dm_env"), ArraySpec((3,), "i4")),
        (spaces.Box(0, 255, (84, 84), np.uint8), ArraySpec((84, 84), "u1")),
        (spaces.Discrete(5), ArraySpec((), "i8")),
        (spaces.MultiDiscrete([2, 3]), ArraySpec((2,), "i8")),
        (spaces.MultiBinary(4), ArraySpec((4,), "i1")),
    ],
)
def test_a_leaf_is_known_by_its_shape_and_dtype(leaf: object, spec: ArraySpec) -> None:
    assert as_spec(leaf, "table 't', column 'a'") == spec


def test_dict_and_tuple_spaces_become_dicts_and_tuples() -> None:
    space = spaces.Dict(
        {
            "camera": spaces.Tuple([spaces.Box(0, 1, (2,)), spaces.Discrete(3)]),
            "inner": spaces.Dict(a=spaces.Discrete(2)),
        }
    )
    signature = Signature.from_tree({"observation": space, "action": spaces.Discrete(2)}, "t")
    assert signature.tree == {"observation": {"camera": (0, 1), "inner": {"a": 2}}, "action": 3}
    assert signature.leaves[0].path == "observation/camera[0]"
    sample = {"observation": space.sample(), "action": spaces.Discrete(2).sample()}
    assert [array.dtype.name for array in signature.canonical(sample) if array is not None] == [
        "float32",
        "int64",
        "int64",
        "int64",
    ]


@pytest.mark.parametrize(
    ("leaf", "error", "text"),
    [
        (3, TypeError, "table 't', column 'a': 3 is not a column; expected an ArraySpec(shape, dtype), a gymnasium sp"),
        (None, TypeError, "table 't', column 'a': None is not a column"),
        ("f4", TypeError, "table 't', column 'a': 'f4' is not a column"),
        (float, TypeError, "table 't', column 'a': <class 'float'> is not a column"),
        (ArraySpec, TypeError, "is not a column"),
        (
            spaces.Text(3),
            TypeError,
            "table 't', column 'a': Text has no fixed shape; expected an ArraySpec(shape, dtype",
        ),
        (spaces.Sequence(spaces.Discrete(2)), TypeError, "table 't', column 'a': Sequence has no fixed shape"),
        (spaces.OneOf([spaces.Discrete(2)]), TypeError, "table 't', column 'a': OneOf has no fixed shape"),
        (np.zeros(3, object), TypeError, "table 't', column 'a': dtype object cannot be a column: Python objects"),
        (np.zeros(3, ">f4"), TypeError, "table 't', column 'a': dtype '>f4' is of foreign byte order; declare the nat"),
        (np.zeros(3, [("x", "f4")]), TypeError, "make each field a column"),
        (SimpleNamespace(shape=(-1,), dtype="f4"), ValueError, "table 't', column 'a': shape is (-1,); expected sizes"),
    ],
)
def test_what_cannot_be_a_column_is_refused_by_the_columns_name(leaf: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        Signature.from_tree({"a": leaf}, "t")


def test_no_foreign_library_is_imported_to_read_a_leaf() -> None:
    code = (
        "import sys; from shmreplay.columns.signature import Signature; from shmreplay.columns.specs import ArraySpec;"
        "Signature.from_tree({'a': ArraySpec((), 'f4')}, 't');"
        "sys.exit(', '.join({'gymnasium', 'torch', 'jax', 'dm_env', 'ml_dtypes'} & sys.modules.keys()) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("spec", "flags", "row_bytes", "stride"),
    [
        (ArraySpec((3,), "f4"), 0, 12, 12),
        (ArraySpec((3,), "f4", mutable=True), MUTABLE, 12, 8 + 2 * 16),
        (ArraySpec((3,), "f8", mutable=True), MUTABLE, 24, 8 + 2 * 24),
        (ArraySpec((3,), "f4", compression="lz4"), HEAP, 8, 8),
        (ArraySpec((None,), "f4"), HEAP, 8, 8),
        (ArraySpec((3,), "f4", optional=True), HEAP, 8, 8),
        (ArraySpec((3,), "f4", per="item", optional=True), PER_ITEM, 0, 0),
    ],
)
def test_a_row_of_a_chunk_has_the_value_or_where_it_is(
    spec: ArraySpec, flags: int, row_bytes: int, stride: int
) -> None:
    leaf = Leaf("x", spec, 0)
    assert (leaf.flags, leaf.row_bytes, leaf.stride) == (flags, row_bytes, stride)


def test_the_kinds_of_columns_are_those_of_the_core() -> None:
    assert (HEAP, MUTABLE, PER_ITEM) == (_core.HEAP_COLUMN, _core.MUTABLE_COLUMN, _core.PER_ITEM_COLUMN)
