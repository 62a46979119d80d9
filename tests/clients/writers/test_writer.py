"""Writers: episodes, and every misuse by its text."""

import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.tables import TableMaker, check, live, part_of_step, spans, step, steps

EPISODIC = {
    "observation": sr.ArraySpec((2,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "terminated": sr.ArraySpec((), "bool"),
    "truncated": sr.ArraySpec((), "bool"),
}


def episodic(n: int, *, terminated: bool = False, truncated: bool = False) -> dict[str, Any]:
    return {
        "observation": np.full(2, n, np.float32),
        "action": n,
        "terminated": terminated,
        "truncated": truncated,
    }


# --- episodes --------------------------------------------------------------------------------------------------------


def test_episodes_are_counted_while_items_of_them_live(make_table: TableMaker) -> None:
    table = make_table(4, item_steps=1, sampler=sr.selectors.Fifo())
    with table.writer(history=1) as writer:
        for episode in range(5):
            for n in range(3):
                writer.append(step(10 * episode + n))
                writer.create_item(length=1)
            writer.end_episode()
    info = table.info()
    assert (info.size, info.num_episodes, info.num_deleted_episodes) == (4, 2, 3)
    assert live(table).steps.tolist() == [2, 0, 1, 2]
    table.delete(table.keys()[1:])
    assert (table.info().num_episodes, table.info().num_deleted_episodes) == (1, 4)


@pytest.mark.parametrize("column", ["terminated", "truncated"])
def test_a_forgotten_end_episode_is_said_at_the_next_append(make_table: TableMaker, column: str) -> None:
    table = make_table(item_steps=2, signature=EPISODIC)
    with table.writer() as writer:
        writer.append(episodic(1, **{column: True}))
        for _ in range(2):
            with pytest.raises(sr.ShmReplayError) as raised:
                writer.append(episodic(2))
            assert str(raised.value) == (
                f"table {table.name!r}: the last step was terminated or truncated; call end_episode(), with the final "
                "observation if there is one, before the next append; items by hand that reach it come between "
                "append(final_step, partial=True) and end_episode(). Column 'terminated' or 'truncated' says so"
            )
        writer.append({"observation": np.zeros(2, np.float32)}, partial=True)  # the final observation belongs here
        writer.end_episode()
        writer.append(episodic(3))
        writer.create_item(length=1)
    assert live(table).data["action"].tolist() == [[3, 0]]


def test_the_final_step_is_an_append_and_the_end_of_the_episode(make_table: TableMaker) -> None:
    table = make_table(item_steps=3, signature=EPISODIC)
    with table.writer() as writer:
        writer.append(episodic(1))
        writer.append(episodic(2, truncated=True))
        writer.append({"observation": np.full(2, 3, np.float32)}, partial=True)
        writer.create_item(length=3)
        writer.end_episode()
        writer.append(episodic(10, terminated=True))
        writer.end_episode({"observation": np.full(2, 11, np.float32)})
        writer.append(episodic(20))
        writer.create_item(length=1)
    batch = live(table)
    assert batch.data["observation"][:, :, 0].tolist() == [[1, 2, 3], [20, 0, 0]]
    assert batch.data["action"].tolist() == [[1, 2, 0], [20, 0, 0]]
    assert batch.lengths["observation"].tolist() == [3, 1]
    assert batch.lengths["action"].tolist() == [2, 1]
    assert batch.episodes[0] != batch.episodes[1]


# --- misuse ----------------------------------------------------------------------------------------------------------


def test_lengths_that_are_none_are_refused(make_table: TableMaker) -> None:
    table = make_table(item_steps=3)
    with table.writer(history=3) as writer:
        with pytest.raises(ValueError, match="length is 1, but the writer holds 0 steps of this episode"):
            writer.create_item(length=1)
        for n in range(9):
            writer.append(step(n))
        for length in (0, -1):
            with pytest.raises(ValueError, match=f"table {table.name!r}: length is {length}; expected 1 to 3"):
                writer.create_item(length=length)
        with pytest.raises(TypeError, match=r"create_item has no length; pass length=\.\.\., or trajectory="):
            writer.create_item(1)
        with pytest.raises(TypeError, match=r"length is 2\.0; expected a number of steps"):
            writer.create_item(length=2.0)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="priority is nan; priorities must be finite"):
            writer.create_item(float("nan"), length=1)
        with pytest.raises(TypeError, match="priority is 'x'; expected a number"):
            writer.create_item("x", length=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="history is 0; expected 1 to"):
        table.writer(history=0)
    assert len(table) == 0


def test_items_longer_than_declared_are_refused_and_longer_histories_are_not(make_table: TableMaker) -> None:
    declared, undeclared = make_table(item_steps=4), make_table()
    for table in (declared, undeclared):
        with table.writer(history=6) as writer:
            for n in range(6):
                writer.append(step(n))
            if table is declared:
                with pytest.raises(ValueError) as raised:  # noqa: PT011  # its whole text is compared
                    writer.create_item(length=5)
                assert str(raised.value) == f"length is 5; table {table.name!r} was declared with item_steps=4"
                writer.create_item(length=4)
            else:
                with pytest.raises(ValueError, match=r"length is 7, but the writer holds 6 steps .* \(history=6\)"):
                    writer.create_item(length=7)
                writer.create_item(length=6)
    assert (spans(live(declared)), spans(live(undeclared))) == ([[2, 3, 4, 5]], [[0, 1, 2, 3, 4, 5]])


def test_single_steps_are_refused_by_a_table_declared_for_spans(make_table: TableMaker) -> None:
    table = make_table(item_steps=4)
    calls: dict[str, Callable[[], object]] = {
        "insert": lambda: table.insert(step(0)),
        "insert_batch": lambda: table.insert_batch(steps([0])),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011  # its whole text is compared
            call()
        assert str(raised.value) == (
            f"table {table.name!r}: {name} makes single-step items, but the table was declared with item_steps=4; use "
            "table.writer() and create_item(length=...)"
        )
    assert len(table) == 0


def test_a_writer_is_not_pickled(make_table: TableMaker) -> None:
    table = make_table()
    with table.writer() as writer, pytest.raises(TypeError, match="a writer cannot be pickled, it is a stream of one"):
        pickle.dumps(writer)


def test_a_refused_step_leaves_the_row_as_it_was(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer() as writer:
        writer.append(step(1))
        with pytest.raises(sr.SignatureMismatch, match="column 'x': expected float32"):
            writer.append({**step(2), "x": np.zeros(5)})
        writer.append(part_of_step(3, {"n"}), partial=True)
        with pytest.raises(sr.SignatureMismatch, match="column 'x': expected float32"):
            writer.append({"x": np.zeros(5), "image": step(3)["image"]}, partial=True)
        writer.append(part_of_step(3, {"x", "image", "half", "odd"}))
        writer.create_item(length=2)
    assert spans(live(table)) == [[1, 3]]


def test_a_part_that_is_refused_keeps_no_array(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer() as writer:
        writer.append(part_of_step(1, {"n", "image"}), partial=True)
        image = step(2)["image"]
        before = sys.getrefcount(image)
        with pytest.raises(sr.ShmReplayError, match="image"):  # the open row has it
            writer.append({"image": image}, partial=True)
        assert sys.getrefcount(image) == before


def test_a_closed_writer_says_so(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    writer = table.writer()
    writer.append(step(1))
    writer.create_item(length=1)
    writer.close()
    writer.close()
    calls = (
        lambda: writer.append(step(2)),
        lambda: writer.create_item(length=1),
        writer.end_episode,
        writer.flush,
    )
    for call in calls:
        with pytest.raises(sr.ShmReplayError, match=r"the writer is closed; make a new one with table.writer\(\)"):
            call()
    assert spans(live(table)) == [[1]]
    assert table._arena.stats()["used_chunks"] == 1


def test_single_steps_and_spans_do_not_share_a_table(make_table: TableMaker) -> None:
    singles, longer = make_table(), make_table()
    singles.insert(step(1))
    with singles.writer(history=2) as writer:
        writer.append(step(2))
        with pytest.raises(sr.SignatureMismatch, match=r"its items are others, single steps \(made by insert\)"):
            writer.create_item(length=1)
    with longer.writer() as writer:
        writer.append(step(1))
        writer.create_item(length=1)
    ways: dict[str, Callable[[], object]] = {
        "insert": lambda: longer.insert(step(2)),
        "insert_batch": lambda: longer.insert_batch(steps([2])),
    }
    for name, call in ways.items():
        with pytest.raises(
            sr.SignatureMismatch,
            match=f"its items are spans, .*: they show several steps of .* {name} makes single-step items, wh",
        ):
            call()
    assert (len(singles), len(longer)) == (1, 1)


def test_a_writer_is_for_one_thread_at_a_time(make_table: TableMaker) -> None:
    """One waits in create_item; the other is told, and the first one's item is whole."""
    table = make_table.queue(1, item_steps=2)
    writer = table.writer()
    writer.append(step(1))
    writer.create_item(length=1)
    writer.append(step(2))
    thread = threading.Thread(target=lambda: writer.create_item(length=2))
    thread.start()
    while table.info().blocked_inserts == 0:
        pass
    calls = (
        lambda: writer.append(step(9)),
        lambda: writer.append(part_of_step(9, {"n"}), partial=True),
        lambda: writer.create_item(length=1),
        writer.end_episode,
    )
    for call in calls:
        with pytest.raises(
            sr.ShmReplayError, match="the writer is in use by another thread; give each thread a writer"
        ):
            call()
    assert spans(table.sample(1)) == [[1]]
    thread.join()
    assert spans(table.sample(1)) == [[1, 2]]
    writer.close()


def test_an_item_of_more_chunks_than_one_may_have_is_refused(make_table: TableMaker) -> None:
    table = make_table(4, item_steps=400, chunk_steps=1)
    with table.writer(history=400) as writer:
        for n in range(400):
            writer.append(step(n))
        with pytest.raises(
            sr.ShmReplayError, match="spans more chunks than one item may; create the table with larger"
        ):
            writer.create_item(length=400)
        writer.create_item(length=20)
    assert spans(live(table)) == [list(range(380, 400))]


def test_all_streams_open_is_an_error_that_says_what_to_do(make_table: TableMaker) -> None:
    table = make_table(item_steps=2, max_streams=2)
    writers = [table.writer() for _ in range(3)]
    for writer in writers[:2]:
        writer.append(step(1))
    with pytest.raises(
        sr.ShmReplayError,
        match=r"append: all streams of the arena are open; close writers or raise max_streams \(max_streams is 2\)",
    ):
        writers[2].append(step(1))
    writers[0].close()
    writers[2].append(step(1))
    for writer in writers:
        writer.close()
    assert check(table) == []


def test_what_writers_can_not_do_says_so(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with pytest.raises(TypeError, match=r"patterns= has 1; expected windows and patterns, such as sr.NStep\(3\)"):
        table.writer(patterns=[1])
    with table.writer() as writer:
        writer.append(step(1))
        with pytest.raises(sr.SignatureMismatch, match="values= has column 'n', which steps have; the table has none"):
            writer.create_item(length=1, values={"n": 1})
        with pytest.raises(ValueError, match="length= and trajectory= are both given"):
            writer.create_item(length=1, trajectory={})
        with pytest.raises(sr.TableNotFound, match="no table 'other' over the same steps"):
            writer.create_item(length=1, table="other")
