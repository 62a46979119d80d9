"""Batches of every library are shown with their shapes, and say where a part is that one looks for elsewhere."""

import copy
import operator
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.batches.structured import MAX_SHOWN, Structured, show_parts
from shmreplay.clients.params import Params
from shmreplay.clients.params import table as params_table
from shmreplay.columns.signature import Signature
from shmreplay.columns.structure import Node
from tests.support.tables import TableMaker

SIGNATURE = {
    "observation": {"camera": sr.ArraySpec((3, 2), "uint8"), "state": sr.ArraySpec((), "float32")},
    "reward": sr.ArraySpec((), "float64"),
}


def filled(make_table: TableMaker, signature: Any = SIGNATURE, **options: Any) -> Any:
    table = make_table(100, signature=signature, **options)
    zeros = {"observation": {"camera": np.zeros((3, 2), np.uint8), "state": np.float32(0)}, "reward": 0.0}
    if table.spec.item is None:
        table.insert_batch({"observation": {"camera": np.zeros((5, 3, 2), np.uint8), "state": np.zeros(5, np.float32)},
                            "reward": np.zeros(5)})  # fmt: skip
        return table
    with table.writer() as writer:
        for _ in range(9):
            writer.append(zeros)
    return table


def text_of(call: Callable[[], object], kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize("kind", ["Batch", "TorchBatch", "MixedBatch"])
def test_a_batch_shows_dtypes_and_shapes_and_says_where_its_data_is(make_table: TableMaker, kind: str) -> None:
    table = filled(make_table)
    batch: Any = table.sample(4)
    if kind == "TorchBatch":
        batch = pytest.importorskip("shmreplay.clients.torch").TorchBatch.of(batch)
    if kind == "MixedBatch":
        batch = sr.mix([(table, 4)]).sample()
    shapes = "observation/camera uint8[4, 3, 2], observation/state float32[4], reward float64[4]>"
    assert repr(batch).startswith(f"<{kind} of 4 items of ")
    assert repr(batch).endswith(f": {shapes}")
    assert text_of(lambda: batch["reward"], TypeError) == f"a {kind} has no ['reward']; write batch.data['reward']"
    assert text_of(lambda: batch.reward, AttributeError) == (
        f"'{kind}' object has no attribute 'reward'; write batch.data['reward']"
    )
    where = "its arrays are in batch.data, which is a dict with the keys 'observation', 'reward'"
    for part in (0, "camera", slice(2)):
        assert text_of(partial(operator.getitem, batch, part), TypeError) == f"a {kind} has no [{part!r}]; {where}"
    assert text_of(lambda: batch.camera, AttributeError) == f"'{kind}' object has no attribute 'camera'; {where}"
    assert text_of(lambda: list(batch), TypeError) == f"a {kind} has no [0]; {where}"
    assert not hasattr(batch, "_nothing")
    assert len(copy.copy(batch)) == len(pickle.loads(pickle.dumps(batch))) == 4


def test_items_of_windows_are_shown_as_they_are(make_table: TableMaker) -> None:
    table = filled(make_table, item=sr.Sequence(3))
    shapes = "observation/camera uint8[{0}, 3, 2], observation/state float32[{0}], reward float64[{0}]"
    assert shapes.format("2, 3") in repr(table.sample(2))
    assert shapes.format("3, 2") in repr(table.sample(2, time_major=True))
    window = filled(make_table, item=sr.Transition()).sample(2)
    assert text_of(lambda: window["next_observation"], TypeError).endswith("; write batch.data['next_observation']")


def test_a_repr_decodes_nothing_and_leaves_open_what_is_not_known(make_table: TableMaker) -> None:
    signature = {"x": sr.ArraySpec((None,), "int64"), "n": sr.ArraySpec((), "int64")}
    table: Any = make_table(100, signature=signature)
    table.insert({"x": np.arange(3), "n": 1})
    batch = table.sample(2)
    assert repr(batch).endswith(": x int64[2, ...], n int64[2]>")
    assert "_shown" not in vars(batch)
    assert batch.data["x"].shape == (2, 3)
    assert repr(batch).endswith(": x int64[2, 3], n int64[2]>")
    free: Any = make_table(100, signature=None)
    free.insert({"any": 1})
    batch = free.sample(2)
    assert repr(batch).endswith(f" of table {free.name!r}: 2 steps>")
    assert text_of(lambda: batch["any"], TypeError) == (
        "a Batch has no ['any']; its arrays are in batch.data, which is one column"
    )
    assert len(batch.data) == 2
    assert repr(batch).endswith(": list of 2>")


def test_views_and_snapshots_say_it_too(make_table: TableMaker) -> None:
    table = filled(make_table)
    with table.view(2) as view:
        assert text_of(lambda: view["reward"], TypeError) == "a View has no ['reward']; write view.data['reward']"
        assert text_of(lambda: view[0].reward, AttributeError).endswith("; write item.data['reward']")
    assert not hasattr(view, "observations")  # also after the release
    client = make_table.client
    client.create_tables([params_table("weights", {"w": np.zeros(2)})])
    weights = Params(client.table("weights"))
    weights.publish({"w": np.zeros(2)})
    newest: Any
    with weights.latest() as newest:
        assert text_of(lambda: newest["w"], TypeError) == "a Snapshot has no ['w']; write snapshot.data['w']"
    client.drop_table("weights")


class Pair(NamedTuple):
    first: Any
    second: Any


class Odd(Structured):
    """Its `data` fails by an AttributeError of its own."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    @property
    def _root(self) -> Node:
        return Signature.from_tree(self._tree, "t").root

    @property
    def data(self) -> Any:
        return self._root.no_such_thing  # type: ignore[union-attr]


def test_texts_fit_every_structure_and_stay_short() -> None:
    x = sr.ArraySpec((), "int64")
    odd: Any = Odd(Pair(x, x))
    assert text_of(lambda: odd.first, AttributeError).endswith("; write batch.data.first")
    assert text_of(lambda: odd["first"], TypeError).endswith("batch.data, which is a named tuple Pair(first, second)")
    assert "object has no attribute 'no_such_thing'" in text_of(lambda: odd.data, AttributeError)  # not hidden
    many = Signature.from_tree({f"{'long' * 20}{i:03}": x for i in range(100)}, "t").root
    odd = Odd({f"{'long' * 20}{i:03}": x for i in range(100)})
    assert len(text_of(lambda: odd["first"], TypeError)) < 300
    shown = show_parts(many, [np.zeros(3)] * 100)
    assert shown.endswith("... float64[3], and 92 more")
    assert shown.count("float64[3]") == MAX_SHOWN
    assert len(shown) < 600
