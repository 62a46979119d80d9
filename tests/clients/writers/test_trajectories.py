"""Hand-made items: exactly the steps that were selected, under their own names, for any size of chunks."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.writers.stream_handle import MAX_SELECTIONS
from tests.support.tables import TableMaker, check, live

SIGNATURE = {"a": sr.ArraySpec((), "int64"), "b": {"c": sr.ArraySpec((2,), "float32"), "d": sr.ArraySpec((), "int8")}}


class Outputs(NamedTuple):
    """Outputs with their own names."""

    now: Any
    past: Any


def step(k: int) -> dict[str, Any]:
    return {"a": k, "b": {"c": np.array([k, -k], np.float32), "d": np.int8(k % 100)}}


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
@pytest.mark.parametrize(
    "places", [slice(-4, None), slice(-8, None, 2), [-8, -1], [-1, -2, -3], [-3, -3, -3], slice(None, None, -1)]
)
def test_selections_across_chunk_borders_show_what_they_name(
    make_table: TableMaker, places: Any, chunk_steps: int
) -> None:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=chunk_steps)
    expected = []
    with table.writer(history=8) as writer:
        for k in range(40):
            writer.append(step(k))
            if k >= 7:
                writer.create_item(trajectory={"x": writer.history["a"][places], "y": writer.history["b"]["c"][places]})
                held = np.arange(k - 7, k + 1)
                expected.append(held[places].tolist())
    batch = live(table)
    assert batch.data["x"].tolist() == expected
    np.testing.assert_array_equal(batch.data["y"][..., 1], -batch.data["x"])
    assert batch.mask["x"].all()


def test_outputs_nest_as_they_were_given(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    with table.writer(history=5) as writer:
        for k in range(5):
            writer.append(step(k))
        h = writer.history
        key = writer.create_item(
            trajectory={"deep": [Outputs(h["a"][-1], h["b"]["c"][-3:]), {"k": (h["b"]["d"][::2],)}]}, priority=4.0
        )
    batch = table.get(np.array([key]))
    (outputs, inner) = batch.data["deep"]
    assert isinstance(outputs, Outputs)
    assert outputs.now.tolist() == [4]
    assert outputs.past[0, :, 0].tolist() == [2, 3, 4]
    assert inner["k"][0].tolist() == [[0, 2, 4]]
    assert batch.mask["deep"][0].now.tolist() == [True]
    assert batch.priorities.tolist() == [4.0]


def test_a_trajectory_may_be_one_selection(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    with table.writer(history=3) as writer:
        for k in range(3):
            writer.append(step(k))
        writer.create_item(trajectory=writer.history["a"][-2:])
    assert live(table).data.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("trajectory", "error", "text"),
    [
        (lambda h: {"x": [np.zeros(3)]}, TypeError, "trajectory: 'x[0]' is a ndarray; expected a selection such as"),
        (lambda h: {"x": h["a"]}, TypeError, "trajectory: 'x' is a ColumnHistory; expected a selection such as"),
        (
            lambda h: {"x": h["a"][-1], "y": h["a"][2:2]},
            ValueError,
            "trajectory: 'y' selects no step; expected at least one",
        ),
        (lambda h: {"x": h["a"][[]]}, ValueError, "trajectory: 'x' selects no step; expected at least one"),
        (lambda h: {}, ValueError, "is an empty dict"),
        (lambda h: {"x": []}, ValueError, "is an empty list"),
        (lambda h: {3: h["a"][-1]}, TypeError, "has the key 3; expected keys of type str"),
    ],
)
def test_a_wrong_trajectory_is_refused(
    make_table: TableMaker, trajectory: Any, error: type[Exception], text: str
) -> None:
    table = make_table(10, signature=SIGNATURE)
    with table.writer(history=3) as writer:
        for k in range(3):
            writer.append(step(k))
        with pytest.raises(error, match=re.escape(text)):
            writer.create_item(trajectory=trajectory(writer.history))
        assert len(table) == 0


def test_steps_of_another_writer_are_refused(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    with table.writer(history=3) as writer, table.writer(history=3) as other:
        writer.append(step(1))
        other.append(step(2))
        with pytest.raises(
            ValueError, match="trajectory: 'x' is of another writer's history; an item has steps of one stream"
        ):
            writer.create_item(trajectory={"x": other.history["a"][-1]})


def test_a_missing_cell_names_column_and_step(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    with table.writer(history=3) as writer:
        writer.append(step(0))
        writer.append({"a": 1}, partial=True)
        text = "create_item: an item selects column 'b/d' of step 1 of the stream, which was appended without it"
        with pytest.raises(sr.SignatureMismatch, match=text):
            writer.create_item(trajectory={"x": writer.history["a"][-1], "y": writer.history["b"]["d"][-2:]})
        writer.create_item(trajectory={"x": writer.history["a"][-1], "y": writer.history["b"]["d"][-2:-1]})
    assert live(table).data["x"].tolist() == [1]
    assert live(table).data["y"].tolist() == [[0]]


def test_the_table_keeps_its_first_item_s_structure(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    with table.writer(history=3) as writer:
        for k in range(3):
            writer.append(step(k))
        writer.create_item(trajectory={"x": writer.history["a"][-2:]})
        for shown, other in (
            (r"several steps of y \(column 'a'\)", {"y": writer.history["a"][-2:]}),
            (r"one step of x \(column 'a'\)", {"x": writer.history["a"][-1]}),
            (r"several steps of x \(column 'b/d'\)", {"x": writer.history["b"]["d"][-2:]}),
        ):
            text = (
                rf"create_item: trajectory shows {shown}, but the items show several steps of x \(column 'a'\) in "
                f"table {table.name!r}; the items of a table have one structure, .*: declare item="
            )
            with pytest.raises(sr.SignatureMismatch, match=text):
                writer.create_item(trajectory=other)
        writer.create_item(trajectory={"x": writer.history["a"][-3:]})  # more steps are no other structure
    assert live(table).lengths["x"].tolist() == [2, 3]


def test_arguments_that_do_not_go_together_are_refused(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    with table.writer(history=3) as writer:
        writer.append(step(0))
        whole = {"x": writer.history["a"][-1]}
        for options, error, text in (
            (
                {"length": 1, "trajectory": whole},
                ValueError,
                "length= and trajectory= are both given; expected one of them",
            ),
            (
                {"values": {"a": 1}, "trajectory": whole},
                sr.SignatureMismatch,
                "values= has column 'a', which steps have; the table has none that are per item",
            ),
            ({"length": 1, "table": "other"}, sr.TableNotFound, "no table 'other' over the same steps; create both w"),
            (
                {"trajectory": whole, "table": "other"},
                sr.TableNotFound,
                "no table 'other' over the same steps; create both w",
            ),
            (
                {"trajectory": whole, "priority": float("nan")},
                ValueError,
                "priority is nan; priorities must be finite, >= 0 and at most 1e+280",
            ),
            (
                {"trajectory": whole, "priority": -1.0},
                ValueError,
                "priority is -1.0; priorities must be finite, >= 0 and at most 1e+280",
            ),
        ):
            with pytest.raises(error, match=re.escape(text)):
                writer.create_item(**options)
        writer.close()
        with pytest.raises(sr.ShmReplayError, match="the writer is closed"):
            writer.create_item(trajectory=whole)
    assert len(table) == 0


def test_a_selection_with_too_many_pieces_is_refused_before_anything_happens(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE, capacity_steps=1000)
    with table.writer(history=300) as writer:
        for k in range(300):
            writer.append(step(k))
        places = np.random.default_rng(0).integers(0, 300, 280)
        with pytest.raises(ValueError, match="select with slices instead of lists"):
            writer.create_item(trajectory={"x": writer.history["a"][places]})
        writer.create_item(trajectory={"x": writer.history["a"][::7]})
    assert live(table).data["x"].tolist() == [list(range(0, 300, 7))]


def test_any_number_of_different_selections_can_be_used(make_table: TableMaker) -> None:
    table = make_table(50, signature=SIGNATURE, chunk_steps=3)
    rng = np.random.default_rng(0)
    expected = []
    with table.writer(history=8) as writer:
        for k in range(8):
            writer.append(step(k))
        for _ in range(3 * MAX_SELECTIONS):
            places = rng.integers(0, 8, 4)
            writer.create_item(trajectory={"x": writer.history["a"][places]})
            expected.append(places.tolist())
        assert len(writer._selections) <= MAX_SELECTIONS
    assert live(table).data["x"].tolist() == expected[-50:]
    assert check(table) == []


def test_a_selection_that_is_kept_names_the_same_steps_until_they_leave(make_table: TableMaker) -> None:
    table = make_table(1000, signature=SIGNATURE)
    with table.writer(history=6) as writer:
        for k in range(6):
            writer.append(step(k))
        h = writer.history
        kept = {"x": h["a"][-3:], "deep": [h["b"]["c"][[5, 1]], (h["b"]["d"][4],)]}
        keys = []
        for k in range(6, 9):
            keys += [writer.create_item(trajectory=kept), writer.create_item(trajectory=dict(kept))]
            if k < 7:
                writer.append(step(k))
        writer.append(step(8))
        with pytest.raises(sr.ShmReplayError, match="step 1 of column 'b/c' has left"):
            writer.create_item(trajectory=kept)
        kept["x"] = h["a"][-2:]
        kept["deep"] = h["a"][-1]
        with pytest.raises(sr.SignatureMismatch):  # it was read anew: that is another structure
            writer.create_item(trajectory=kept)
    found = table.get(keys).data
    assert found["x"].tolist() == [[3, 4, 5]] * 6
    assert found["deep"][0].tolist() == [[[5, -5], [1, -1]]] * 6
    assert found["deep"][1][0].tolist() == [4] * 6


def test_a_selection_of_streams_that_is_kept_moves_with_them(make_table: TableMaker) -> None:
    table = make_table(1000, signature=SIGNATURE)
    with table.vector_writer(2, history=6) as fleet:
        kept = {"x": fleet.history["a"][-2:], "now": fleet.history["a"][-1]}
        keys = []
        for k in range(4):
            steps = [step(k), step(k + 10)]
            fleet.append({"a": np.array([k, k + 10]), "b": {n: np.stack([s["b"][n] for s in steps]) for n in "cd"}})
            if k > 0:
                keys += fleet.create_items(trajectory=kept).tolist()
        found = table.get(keys).data
    assert found["x"].tolist() == [pair for k in range(3) for pair in ([k, k + 1], [k + 10, k + 11])]
    assert found["now"].tolist() == [number for k in range(1, 4) for number in (k, k + 10)]
