"""update_data: stored values of mutable columns change for everybody, and only where there is a real step."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker, check

SIGNATURE = {
    "t": sr.ArraySpec((), "int64"),
    "state": sr.ArraySpec((3,), "float32", mutable=True),
    "extra": {"value": sr.ArraySpec((), "int8", mutable=True)},
}


def state_of(t: Any) -> np.ndarray[Any, Any]:
    return np.asarray(np.asarray(t)[..., None] + np.array([0, 0.25, 0.5]), np.float32)


def write(table: TableHandle, length: int) -> None:
    """One episode; states and values follow from t."""
    with table.writer() as writer:
        for t in range(length):
            writer.append({"t": t, "state": state_of(t), "extra": {"value": t % 100}})
        writer.end_episode()


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
def test_a_learner_that_writes_states_back_sees_them_in_every_item_that_has_the_step(
    make_table: TableMaker, chunk_steps: int
) -> None:
    """As R2D2 refreshes stored states: sequences of 8 every 4 overlap, a step's state is one for both."""
    table = make_table(100, signature=SIGNATURE, item=sr.Sequence(8, period=4), chunk_steps=chunk_steps)
    write(table, 20)
    batch = table.get(table.keys())
    assert batch.data["t"][:, 0].tolist() == [0, 4, 8, 12, 16]
    np.testing.assert_array_equal(batch.data["state"][:3], state_of(batch.data["t"][:3]))
    fresh = -state_of(batch.data["t"][[1, 3], 4:])  # the second halves of two items
    assert table.update_data(batch.keys[[1, 3]], {"state": fresh}, at=4) == 2
    after = table.get(table.keys())
    changed = {8, 9, 10, 11, 16, 17, 18, 19}
    for i in range(5):
        for j in range(8):
            if not after.mask["state"][i, j]:
                assert not after.data["state"][i, j].any()
                continue
            t = int(after.data["t"][i, j])
            np.testing.assert_array_equal(after.data["state"][i, j], state_of(t) * (-1 if t in changed else 1))
    np.testing.assert_array_equal(after.data["extra"]["value"], batch.data["extra"]["value"])
    np.testing.assert_array_equal(after.keys, batch.keys)


def test_states_may_be_written_again_and_again(make_table: TableMaker, rng: np.random.Generator) -> None:
    table = make_table(50, signature=SIGNATURE, item=sr.Sequence(4, period=4), chunk_steps=4)
    write(table, 40)
    expected = table.get(table.keys()).data["state"].copy()
    keys = table.keys()
    for _ in range(300):
        chosen = rng.permutation(10)[: rng.integers(1, 10)]
        at = int(rng.integers(0, 4))
        count = int(rng.integers(1, min(2, 4 - at) + 1))
        values = rng.normal(size=(len(chosen), count, 3)).astype("f4")
        assert table.update_data(keys[chosen], {"state": values}, at=at) == len(chosen)
        expected[chosen, at : at + count] = values
        np.testing.assert_array_equal(table.get(keys).data["state"], expected)
    assert check(table) == []


def test_places_are_those_of_the_batch_and_padding_stays_padding(make_table: TableMaker) -> None:
    item = sr.Window({"t": (-2, 3), "state": (-2, 3)}, at_start="zeros", at_end="pad")
    table = make_table(10, signature=SIGNATURE, item=item)
    write(table, 2)
    before = table.get(table.keys())
    assert before.mask["t"].tolist() == [[False, False, True, True, False], [False, True, True, False, False]]
    new = np.arange(1, 11, dtype="f4").reshape(2, 5, 1) * np.ones(3, "f4")
    assert table.update_data(before.keys[:1], {"state": new[:1]}) == 1
    first = table.get(table.keys())
    assert first.data["state"][0, :, 0].tolist() == [0, 0, 3, 4, 0]
    assert first.data["state"][1, :, 0].tolist() == [0, 3, 4, 0, 0]
    assert table.update_data(before.keys[1:], {"state": new[1:]}) == 1
    assert table.get(table.keys()).data["state"][0, :, 0].tolist() == [0, 0, 7, 8, 0]
    assert table.update_data(before.keys, {"state": new[:, :1]}, at=4) == 2  # behind both
    assert table.get(table.keys()).data["state"][0, :, 0].tolist() == [0, 0, 7, 8, 0]


def test_several_columns_change_at_once_and_single_steps_have_one_place(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    keys = [table.insert({"t": t, "state": state_of(t), "extra": {"value": t}}) for t in range(5)]
    chosen = np.array([keys[3], keys[1]])
    values = {"state": state_of([[33], [11]]), "extra": {"value": np.array([[33], [11]], "i1")}}
    assert table.update_data(chosen, values) == 2
    batch = table.get(np.array(keys))
    np.testing.assert_array_equal(batch.data["state"], state_of([0, 11, 2, 33, 4]))
    assert batch.data["extra"]["value"].tolist() == [0, 11, 2, 33, 4]
    with pytest.raises(ValueError, match="places 1 to 4, but the table's longest item has 1 steps"):
        table.update_data(chosen, {"extra": {"value": np.zeros((2, 4), "i1")}}, at=1)
    assert table.get(np.array(keys)).data["extra"]["value"].tolist() == [0, 11, 2, 33, 4]


def test_the_writer_sees_what_was_changed_and_items_made_later_too(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE, item_steps=2)
    with table.writer(history=3) as writer:
        for t in range(3):
            writer.append({"t": t, "state": state_of(t), "extra": {"value": t}})
        key = writer.create_item(length=2)
        assert table.update_data(np.array([key]), {"state": state_of([[70, 71]])}) == 1
        np.testing.assert_array_equal(writer.history["state"][:].numpy(), state_of([0, 70, 71]))
        writer.create_item(length=1)
    batch = table.get(table.keys())
    np.testing.assert_array_equal(batch.data["state"], [state_of([70, 71]), [state_of(71), np.zeros(3)]])


def test_items_that_are_gone_are_skipped_whatever_took_their_place(make_table: TableMaker) -> None:
    table = make_table(4, signature=SIGNATURE, chunk_steps=1)
    old = [table.insert({"t": t, "state": state_of(t), "extra": {"value": t}}) for t in range(4)]
    for t in range(4, 8):
        table.insert({"t": t, "state": state_of(t), "extra": {"value": t}})
    live = table.keys()
    mixed = np.array([old[0], live[2], old[3]])
    assert table.update_data(mixed, {"state": state_of([[1], [99], [2]])}) == 1
    np.testing.assert_array_equal(table.get(live).data["state"], state_of([4, 5, 99, 7]))
    with pytest.warns(UserWarning, match="update_data hit none of 2 items; they are gone by now"):
        assert table.update_data(np.array(old[:2]), {"state": state_of([[1], [2]])}) == 0
    assert table.update_data(np.empty(0, np.int64), {"state": np.empty((0, 1, 3), "f4")}) == 0


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"t": np.zeros((1, 1), "i8")},
            "column 't': is int64 (); update_data changes mutable columns, declare it with",
        ),
        ({}, "update_data has no values; expected at least one mutable column"),
        (
            {"state": np.zeros((1, 3), "f4")},
            "column 'state': expected float32 (1, k, 3) for 1 keys and k >= 1 steps, got float32 (1, 3); one step",
        ),
        (
            {"state": np.zeros((2, 1, 3), "f4")},
            "column 'state': expected float32 (1, k, 3) for 1 keys and k >= 1 steps, got",
        ),
        (
            {"state": np.zeros((1, 0, 3), "f4")},
            "for 1 keys and k >= 1 steps, got float32 (1, 0, 3)",
        ),
        (
            {"state": [[[1, 2, 3]]]},
            "column 'state': expected float32 (1, k, 3) for 1 keys and k >= 1 steps, got a list of 1",
        ),
        ({"state": np.zeros((1, 1, 4), "f4")}, "column 'state': expected float32 (1, 1, 3), got float32 (1, 1, 4)"),
        (
            {"state": np.zeros((1, 1, 3), "f8")},
            "column 'state': expected float32 (1, 1, 3), got float64 (1, 1, 3); conv",
        ),
        (
            {"state": np.zeros((1, 2, 3), "f4"), "extra": {"value": np.zeros((1, 3), "i1")}},
            "update_data has 2 steps of column 'state' and 3 of column 'extra/value'; expected as many",
        ),
        ({"states": 1}, "unknown key 'states'; the signature has"),
    ],
)
def test_values_that_do_not_fit_change_nothing(make_table: TableMaker, values: Any, text: str) -> None:
    table = make_table(10, signature=SIGNATURE)
    key = table.insert({"t": 1, "state": state_of(1), "extra": {"value": 1}})
    with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
        table.update_data(np.array([key]), values)
    np.testing.assert_array_equal(table.sample(1).data["state"], [state_of(1)])


def test_keys_and_places_are_checked(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    with pytest.raises(TypeError, match="keys have dtype float64; expected int64"):
        table.update_data(np.zeros(1), {"state": np.zeros((1, 1, 3), "f4")})
    with pytest.raises(ValueError, match="at is -1; expected an integer in 0"):
        table.update_data(np.ones(1, np.int64), {"state": np.zeros((1, 1, 3), "f4")}, at=-1)


@pytest.mark.parametrize("item", [sr.Sequence(8, period=4), None])
def test_places_that_no_item_has_are_refused_with_both_numbers(make_table: TableMaker, item: sr.Window | None) -> None:
    table = make_table(10, signature=SIGNATURE, item=item)
    with table.writer(history=8) as writer:
        for t in range(8):
            writer.append({"t": t, "state": state_of(t), "extra": {"value": t}})
        if item is None:
            writer.create_item(length=8)
    before = table.get(table.keys())
    for at, k in ((100, 1), (7, 2)):
        with pytest.raises(ValueError, match=rf"places {at} to {at + k - 1}, .* longest item has 8 steps; expected at"):
            table.update_data(before.keys, {"state": np.zeros((len(before), k, 3), "f4")}, at=at)
    np.testing.assert_array_equal(table.get(before.keys).data["state"], before.data["state"])
    assert table.update_data(before.keys, {"state": np.zeros((len(before), 1, 3), "f4")}, at=7) == len(before) == 1


def test_a_trajectory_is_changed_at_every_step_that_it_spans(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    with table.writer(history=4) as writer:
        for t in range(2):
            writer.append({"t": t, "state": state_of(t), "extra": {"value": t}})
        h = writer.history["state"]
        key = writer.create_item(trajectory={"now": h[-2], "next": h[-1]})
    table.update_data([key], {"state": np.ones((1, 1, 3), "f4")}, at=1)
    batch = table.get([key])
    np.testing.assert_array_equal(batch.data["now"][0], state_of(0))
    assert (batch.data["next"] == 1).all()
