"""Tables without a signature: steps of any structure come back as they were put in."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shmreplay as sr
from tests.shmreplay.columns.test_step_codec import is_same
from tests.support.tables import TableMaker, check, client_of


def step(n: int) -> Any:
    """Of another structure each."""
    kinds: list[Any] = [
        {"n": n, "x": np.arange(n % 9, dtype="f4")},
        [n, "text" * (n % 50), None, (1.5, True)],
        (np.int16(n), np.full((2, n % 4), n, ml_dtypes.bfloat16)),
        n,
        {"deep": {"er": [{"n": bytes(n % 200)}]}},
        None,
    ]
    return kinds[n % len(kinds)]


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
def test_steps_come_back_as_a_list(make_table: TableMaker, chunk_steps: int) -> None:
    table = make_table(1000, signature=None, chunk_steps=chunk_steps)
    for n in range(30):
        table.insert(step(n))
    table.insert_batch([step(n) for n in range(30, 90)])
    found = table.get(table.keys()).data
    assert isinstance(found, list)
    assert is_same(found, [step(n) for n in range(90)])
    for drawn in table.sample(20).data:
        assert any(is_same(drawn, step(n)) for n in range(90))


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
def test_items_of_several_steps_are_lists_of_lists(make_table: TableMaker, chunk_steps: int) -> None:
    table = make_table(1000, signature=None, item_steps=4, chunk_steps=chunk_steps)
    expected = []
    with table.writer() as writer:
        for n in range(30):
            writer.append(step(n))
            length = min(n + 1, 1 + n % 4)
            writer.create_item(length=length)
            expected.append([step(k) for k in range(n + 1 - length, n + 1)])
        assert is_same(writer.history[-3:].tolist(), [step(n) for n in (27, 28, 29)])
        assert writer.history[-1].tolist() is None
        with pytest.raises(TypeError, match="the table has no signature, so its steps are not arrays; use tolist"):
            writer.history[-1].numpy()
    batch = table.get(table.keys())
    assert is_same(batch.data, expected)
    assert batch.mask.sum(axis=1).tolist() == [len(steps) for steps in expected]


def test_trajectories_select_steps(make_table: TableMaker) -> None:
    table = make_table(100, signature=None)
    with table.writer(history=5) as writer:
        for n in range(1, 6):
            writer.append({"n": n})
        h = writer.history
        writer.create_item(trajectory={"stack": h[-4::2], "last": h[-1]})
    assert table.sample(1).data == {"stack": [[{"n": 2}, {"n": 4}]], "last": [{"n": 5}]}


def test_a_queue_of_anything(make_table: TableMaker) -> None:
    table = make_table.queue(4, signature=None)
    for n in range(100):
        table.insert([n], timeout_s=0)
        assert table.sample(1, timeout_s=0).data == [[n]]
    assert check(table) == []


def test_what_can_not_be_stored_is_named_and_nothing_goes_in(make_table: TableMaker) -> None:
    table = make_table(10, signature=None)
    text = f"table '{table.name}': obs[1] is of type set; expected numbers, bools, None, str, bytes"
    with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
        table.insert({"obs": [1, {2}]})
    with pytest.raises(sr.SignatureMismatch, match=re.escape("step 1 of the batch: step is of type set")):
        table.insert_batch([1, {2}])
    with pytest.raises(sr.SignatureMismatch, match="expected a list of steps, got int64 \\(3,\\)"):
        table.insert_batch(np.arange(3))
    assert len(table) == 0


def test_windows_need_columns_with_names(make_table: TableMaker) -> None:
    table = make_table(10, signature=None)
    with pytest.raises(sr.SignatureMismatch, match="windows name columns; its signature is no dict or named tuple"):
        table.writer(patterns=[sr.Sequence(3)])


def test_the_same_table_again_is_no_difference_and_another_signature_is(make_table: TableMaker) -> None:
    table = make_table(10, signature=None)
    client_of(table).create_tables([table.spec])
    other = sr.Table(table.name, {"x": sr.ArraySpec((), "f4")}, 10, max_streams=16, max_sessions=16)
    with pytest.raises(ValueError, match="column 'step': is a step of any structure, asked for without it"):
        client_of(table).create_tables([other])


def test_its_mean_bytes_are_of_the_table_where_there_is_no_signature() -> None:
    assert sr.Table("t", None, 10, mean_bytes=300).sig.leaves[0].spec.planned_bytes == 300
    with pytest.raises(
        ValueError, match="table 't': mean_bytes is 300, but there is a signature; give it to the columns"
    ):
        sr.Table("t", {"x": sr.ArraySpec((), "f4")}, 10, mean_bytes=300)
    with pytest.raises(ValueError, match="mean_bytes is 0; expected an integer in 1"):
        sr.Table("t", None, 10, mean_bytes=0)
