"""What items look like: outputs by name, each a part of the signature."""

import re
from typing import NamedTuple

import pytest

import shmreplay as sr
from shmreplay.columns.item_structure import ItemStructure, Selected, unflatten_outputs
from shmreplay.columns.signature import Signature


class Pair(NamedTuple):
    """A named tuple within the steps."""

    left: sr.ArraySpec
    right: sr.ArraySpec


COLUMN = sr.ArraySpec((), "int64")
SIGNATURE = Signature.from_tree(
    {"a": COLUMN, "b": {"c": COLUMN, "d": [COLUMN, COLUMN]}, "p": Pair(COLUMN, COLUMN)}, "t"
)


def test_outputs_show_columns_or_whole_parts_of_the_signature() -> None:
    structure = ItemStructure.of(
        SIGNATURE, [Selected("x", "b"), Selected("y", "a"), Selected("z", "p"), Selected("w", "b/c")]
    )
    assert structure.columns == ((1, 2, 3), (0,), (4, 5), (1,))
    assert unflatten_outputs(structure.names, list("cdeaLRk")) == {
        "x": {"c": "c", "d": ["d", "e"]},
        "y": "a",
        "z": Pair("L", "R"),  # type: ignore[arg-type]
        "w": "k",
    }


@pytest.mark.parametrize("source", ["c", "b/x", "a/b", ""])
def test_a_source_that_is_not_there_is_refused(source: str) -> None:
    text = f"table 't': output 'x' wants column {source!r}; the signature has a, b/c, b/d[0], b/d[1], p/left, p/right"
    with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
        ItemStructure.of(SIGNATURE, [Selected("x", source)])
