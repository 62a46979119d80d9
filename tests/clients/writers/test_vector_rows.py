"""Masks, streams, hand-made items of many streams; and what is refused, with nothing half done."""

import re
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.writers.vector_writer import VectorWriter
from tests.clients.writers.twins import SIGNATURE, finals, rows
from tests.support.tables import TableMaker, live


def actions(table: TableHandle) -> list[Any]:
    found: list[Any] = live(table).data["action"].tolist() if len(table) else []
    return found


def refused(writer: VectorWriter, error: type[Exception], text: str, *args: Any, **options: Any) -> None:
    """An append is refused with that text and changes nothing; what it carries says so."""
    before = writer.episode_steps.tolist(), writer.num_steps.tolist(), writer._table._control().size
    with pytest.raises(error, match=re.escape(text)):
        writer.append(*args, **options)
    assert (writer.episode_steps.tolist(), writer.num_steps.tolist(), writer._table._control().size) == before


def test_a_row_that_the_mask_leaves_out_never_becomes_data(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.vector_writer(3, patterns=[sr.Sequence(1)]) as writer:
        keys = writer.append(rows([1, 2, 3]), mask=[True, False, True])
        assert (keys[:, 0] != 0).tolist() == [True, False, True]
        assert not writer.append(rows([4, 5, 6]), mask=np.zeros(3, np.bool_)).any()
        assert writer.episode_steps.tolist() == [1, 0, 1]
    assert actions(table) == [[1], [3]]


def test_rows_of_a_partial_batch_go_to_the_streams_they_name(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.vector_writer(4, patterns=[sr.Sequence(2)]) as writer:
        writer.append(rows([30, 10]), streams=[3, 1])
        keys = writer.append(rows([11, 0, 31]), streams=np.array([1, 0, 3], np.int32))
        assert (keys[:, 0] != 0).tolist() == [True, False, True]
        writer.append(rows([1, 12]), streams=[0, 1], mask=[True, False])
        assert writer.append(rows(np.empty(0, np.int64)), streams=[]).shape == (0, 1)
    assert actions(table) == [[10, 11], [30, 31], [0, 1]]


def test_what_is_wrong_with_rows_is_said_and_changes_nothing(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    name = table.name
    with table.vector_writer(3, patterns=[sr.Sequence(1)]) as writer:
        steps = rows([1, 2, 3])
        refused(
            writer, sr.SignatureMismatch, "'observation': expected float32 (3, 2), got float32 (2, 2)", rows([1, 2])
        )
        refused(
            writer, sr.SignatureMismatch, "'action': expected int64 (3,)", {**steps, "action": np.zeros(2, np.int64)}
        )
        refused(
            writer, sr.SignatureMismatch, "column 'reward': missing", {k: v for k, v in steps.items() if k != "reward"}
        )
        refused(
            writer, TypeError, f"table {name!r}: mask has dtype int64; expected bool, one a row", steps, mask=[1, 0, 1]
        )
        refused(writer, ValueError, "mask has shape (2,); expected (3,), one a row", steps, mask=[True, False])
        refused(writer, ValueError, "streams[1] is 3; expected 0 to 2", rows([1, 2]), streams=[0, 3])
        refused(writer, ValueError, "streams[0] is -1; expected 0 to 2", rows([1, 2]), streams=[-1, 0])
        refused(writer, ValueError, "stream 1 is in streams twice", rows([1, 2]), streams=[1, 1])
        refused(writer, TypeError, "streams have dtype float64; expected integers", rows([1, 2]), streams=[0.0, 1.0])
        refused(writer, ValueError, "streams have shape (1, 2); expected one axis", rows([1, 2]), streams=[[0, 1]])
        refused(writer, ValueError, "priority is nan; priorities must be finite", steps, priority=float("nan"))
        with pytest.raises(ValueError, match=re.escape("mask has shape (4,); expected (3,)")):
            writer.end_episodes(np.ones(4, np.bool_))
        writer.append(steps)
    assert actions(table) == [[1], [2], [3]]


def test_what_is_wrong_with_one_stream_names_it_before_any_is_written(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.vector_writer(3, patterns=[sr.Sequence(1, priority="reward")]) as writer:
        writer.append(rows([1, 2, 3], terminated=[False, True, False]))
        refused(
            writer,
            sr.ShmReplayError,
            f"table {table.name!r}, stream 1: the last step was terminated or truncated; call end_episodes()",
            rows([4, 5, 6]),
        )
        writer.end_episodes([False, True, False])
        bad = rows([4, 5, 6])
        bad["reward"][2] = np.nan
        refused(
            writer, ValueError, "append, stream 2: the item's table does not take the priority that the call gave", bad
        )
        writer.append(rows([4, 5, 6]))
        half = {"action": np.arange(3)}
        writer.append(half, mask=[True, False, False], partial=True)
        refused(writer, sr.SignatureMismatch, "stream 0, column 'action': the open row has it already", rows([7, 8, 9]))
        refused(
            writer,
            sr.SignatureMismatch,
            "stream 1, column 'action': missing",
            {k: v for k, v in rows([7, 8, 9]).items() if k != "action"},
        )
    assert actions(table) == [[1], [2], [3], [4], [5], [6]]


def test_a_truncated_stream_needs_its_final_step(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.vector_writer(2, patterns=[sr.Transition()]) as writer:
        writer.append(rows([1, 2], truncated=[False, True]))
        with pytest.raises(sr.ShmReplayError, match=r"stream 1: .*not terminated.*'observation' is.*final_steps=\{"):
            writer.end_episodes([False, True])
        with pytest.raises(sr.ShmReplayError, match=r"stream 0: .*'observation' is missing"):
            writer.end_episodes([True, False])  # a reset in mid-episode
        with pytest.raises(sr.ShmReplayError, match=r"stream 1: .*'observation' is missing"):
            writer.end_episodes([False, True], {"action": np.array([0, 1])})
        assert writer.episode_steps.tolist() == [1, 1]
        first, second = writer.end_episodes([False, True], finals([0, 9]))
        assert (len(first), len(second)) == (0, 1)
        assert live(table).data["next_observation"][:, 0].tolist() == [9.0]


def test_create_items_makes_one_of_each_stream(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item_steps=2)
    with table.vector_writer(3) as writer:
        writer.append(rows([0, 10, 20]))
        writer.append(rows([1, 0, 21]), mask=[True, False, True])
        with pytest.raises(
            ValueError, match=re.escape("stream 1: length is 2, but the stream holds 1 steps")
        ) as raised:
            writer.create_items(length=2)
        assert raised.value.done.tolist() == [False] * 3  # type: ignore[attr-defined]
        assert len(table) == 0
        keys = writer.create_items(length=2, priorities=[3.0, np.nan, 5.0], mask=[True, False, True])
        assert table.get(keys[[0, 2]]).priorities.tolist() == [3.0, 5.0]
        assert keys[1] == 0
        with pytest.raises(ValueError, match=re.escape("priorities[2] is -1.0; priorities must be finite, >= 0")):
            writer.create_items(length=1, priorities=[1.0, 1.0, -1.0])
        with pytest.raises(ValueError, match="2 priorities for 3 streams; expected one a stream"):
            writer.create_items(length=1, priorities=[1.0, 1.0])
        with pytest.raises(TypeError, match="neither length= nor trajectory= is given"):
            writer.create_items()
    assert actions(table) == [[0, 1], [20, 21]]


def test_a_trajectory_names_the_same_steps_of_every_stream(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.vector_writer(2, history=5) as writer:
        for k in range(4):
            writer.append(rows([k, 10 + k]))
        writer.append(rows([0, 14]), mask=[False, True])
        h = writer.history
        assert h["action"][-2:].numpy(1).tolist() == [13, 14]
        assert int(h["action"][-1].numpy(0)) == 3
        writer.create_items(
            trajectory={"back": h["action"][-1:-4:-1], "ends": h["action"][[-4, -1]], "now": h["action"][-1]}
        )
        batch = live(table)
        assert batch.data["back"].tolist() == [[3, 2, 1], [14, 13, 12]]
        assert batch.data["ends"].tolist() == [[0, 3], [11, 14]]
        assert batch.data["now"].tolist() == [3, 14]
        for index in (0, slice(None), slice(0, 2), slice(-3, 1)):
            with pytest.raises(ValueError, match="count from the newest"):
                h["action"][index]
        with pytest.raises(IndexError, match="index -7 is out of range"):
            h["action"][-7:]
        with pytest.raises(ValueError, match="stream 0: an item selects more steps, but the stream holds 4"):
            writer.create_items(trajectory={"back": h["action"][-5:], "ends": h["action"][-2:], "now": h["action"][-1]})
        with pytest.raises(sr.ShmReplayError, match="has left the writer's history"):
            h["action"][-5:].numpy(0)
        with pytest.raises(TypeError, match="expected a selection such as"):
            writer.create_items(trajectory={"x": 3})


def test_more_streams_than_there_is_room_for_are_refused_when_it_is_made(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, max_streams=8, chunk_steps=4, capacity_steps=100)
    with pytest.raises(ValueError, match="num_streams is 9; expected 1 to 8"):
        table.vector_writer(9)
    with pytest.raises(ValueError, match="steps of a stream: it would wait for itself"):
        table.vector_writer(8, history=100)
    with table.vector_writer(8, history=1) as writer, pytest.raises(TypeError, match="cannot be pickled"):
        writer.__reduce__()
    with pytest.raises(sr.ShmReplayError, match=re.escape("make a new one with table.vector_writer()")):
        writer.append(rows(np.arange(8)))


def test_streams_are_given_back_when_it_is_closed(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, max_streams=8)
    for _ in range(3):
        with table.vector_writer(8, patterns=[sr.NStep(2)]) as writer:
            for k in range(3):
                writer.append(rows(np.arange(8) + k))
        writer.close()


def test_what_belongs_to_another_call_is_said_with_that_call(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    with table.vector_writer(3, patterns=[sr.Sequence(1)]) as writer:
        with pytest.raises(TypeError, match=r"priority has shape \(3,\); .* create_items\(priorities=\)"):
            writer.append(rows(np.zeros(3)), priority=np.ones(3))  # type: ignore[arg-type]
        writer.append(rows(np.zeros(3)))
        with pytest.raises(sr.SignatureMismatch, match=r"final_steps is float32 \(3,\); expected a dict .*: \.\.\.}"):
            writer.end_episodes(np.ones(3, bool), np.ones(3, "f4"))
        assert writer.episode_steps.tolist() == [1, 1, 1]
    assert repr(writer) == f"<shmreplay VectorWriter of table {table.name!r} closed>"


def test_the_ends_of_no_episode_are_nothing_but_the_writer_must_be_open(make_table: TableMaker) -> None:
    table = make_table(signature={"x": sr.ArraySpec((), "float32")})
    with table.vector_writer(3) as fleet:
        fleet.append({"x": np.zeros(3, "float32")})
        nobody = np.zeros(3, bool)
        for mask in (nobody, nobody.tolist(), np.zeros(6, bool)[::2]):
            assert [keys.tolist() for keys in fleet.end_episodes(mask, {"x": np.zeros(3, "float32")})] == [[], [], []]
        assert fleet.episode_steps.tolist() == [1, 1, 1]
        with pytest.raises(ValueError, match=r"mask has shape \(2,\)"):
            fleet.end_episodes(nobody[:2])
        with pytest.raises(TypeError, match="mask has dtype int64"):
            fleet.end_episodes(np.zeros(3, "int64"))
    with pytest.raises(sr.ShmReplayError, match="is closed"):
        fleet.end_episodes(nobody)
