"""Items of several steps, by writers: what is in them, masks and lengths, chunk borders, episodes, and misuse."""

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.batch import Batch
from shmreplay.clients.table import TableHandle
from tests.tables import PATHS, Pair, TableMaker, by_path, check, columns_of, part_of_step, step

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


def spans(batch: Batch) -> list[list[int]]:
    """The numbers of each item's steps, after a look at every byte, mask and length; no step may lack a column."""
    data, mask, lengths = (by_path(tree) for tree in (batch.data, batch.mask, batch.lengths))
    real = mask["n"]
    for path in PATHS:
        expected = columns_of(data["n"])[path]
        expected[~real] = 0
        np.testing.assert_array_equal(data[path], expected)
        np.testing.assert_array_equal(mask[path], real)
        np.testing.assert_array_equal(lengths[path], real.sum(1))
    return [row[has].tolist() for row, has in zip(data["n"], real, strict=True)]


def live(table: TableHandle) -> Batch:
    return table.get(table.keys())


# --- what is in an item ----------------------------------------------------------------------------------------------


def test_items_are_the_newest_steps_padded_to_the_longest(make_table: TableMaker) -> None:
    table = make_table(item_steps=4)
    with table.writer() as writer:
        for n in range(6):
            writer.append(step(n))
            writer.create_item(length=min(n + 1, 3))
    batch = live(table)
    assert spans(batch) == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert by_path(batch.data)["x"].shape == (6, 4, 5)
    assert batch.mask["n"].dtype == bool
    assert batch.lengths["n"].dtype == np.int32
    assert batch.mask["n"].tolist()[:2] == [[True, False, False, False], [True, True, False, False]]
    assert batch.steps.tolist() == [0, 0, 0, 1, 2, 3]
    assert len(set(batch.episodes.tolist())) == 1


def test_a_longer_item_widens_later_batches(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer(history=7) as writer:
        for n in range(7):
            writer.append(step(n))
        writer.create_item(length=2)
        assert by_path(live(table).data)["n"].shape == (1, 2)
        writer.create_item(length=7)
    assert spans(live(table)) == [[5, 6], [0, 1, 2, 3, 4, 5, 6]]


def test_a_longer_item_that_comes_in_the_middle_of_a_sample_widens_that_batch(make_table: TableMaker) -> None:
    """The call has items in hand and waits for more when the longest one yet comes."""
    table = make_table.queue(10, item_steps=2)
    with table.writer(history=5) as writer:
        for n in range(5):
            writer.append(step(n))
        writer.create_item(length=1)
        writer.create_item(length=2)
        found: list[Batch] = []
        thread = threading.Thread(target=lambda: found.append(table.sample(4)))
        thread.start()
        while table.info().blocked_samples == 0:
            pass
        writer.create_item(length=5)
        writer.create_item(length=3)
        thread.join()
    assert spans(found[0]) == [[4], [3, 4], [0, 1, 2, 3, 4], [2, 3, 4]]


@pytest.mark.parametrize("chunk_steps", [1, 2, 3, 5, 8, 64])
def test_nobody_can_tell_where_chunks_end(make_table: TableMaker, chunk_steps: int) -> None:
    """Every length at every place of a chunk, and appends between the items that refer to them."""
    table = make_table(1000, item_steps=9, chunk_steps=chunk_steps)
    expected = []
    with table.writer(history=9) as writer:
        for n in range(40):
            writer.append(step(n))
            for length in range(1, min(n + 1, 9) + 1):
                writer.create_item(length=length)
                expected.append(list(range(n + 1 - length, n + 1)))
    assert spans(live(table)) == expected
    assert sorted(spans(table.sample(64)))[0] in expected


def test_writers_do_not_mix(make_table: TableMaker, rng: np.random.Generator) -> None:
    """Sixteen streams written by turns into one table: each item is of one stream and its steps are consecutive."""
    table = make_table(2000, item_steps=8, chunk_steps=4, max_streams=17)
    writers = [table.writer() for _ in range(16)]
    counts = [0] * 16
    for turn in rng.integers(0, 16, 1500):
        writers[turn].append(step(int(turn) * 10_000 + counts[turn]))
        counts[turn] += 1
        if counts[turn] >= 8:
            writers[turn].create_item(length=8)
        if rng.random() < 0.02:
            writers[turn].end_episode()
            counts[turn] = (counts[turn] // 1000 + 1) * 1000  # a new episode begins at a round number
            for _ in range(7):
                writers[turn].append(step(int(turn) * 10_000 + counts[turn]))
                counts[turn] += 1
    for writer in writers:
        writer.close()
    batch = table.sample(500)
    episode_of = {}
    for numbers, episode, first in zip(spans(batch), batch.episodes.tolist(), batch.steps.tolist(), strict=True):
        assert numbers == list(range(numbers[0], numbers[0] + 8))
        assert first == numbers[0] % 1000
        assert episode_of.setdefault(numbers[0] // 1000, episode) == episode
    assert len(set(episode_of.values())) == len(episode_of)


def test_overlapping_items_store_a_step_once(make_table: TableMaker) -> None:
    table = make_table(500, item_steps=8, chunk_steps=8, max_streams=1)
    with table.writer(history=8) as writer:
        for n in range(200):
            writer.append(step(n))
            for _ in range(2 if n >= 7 else 0):
                writer.create_item(length=8)
        assert len(table) == 2 * 193
        assert table._arena.stats()["used_chunks"] == 200 // 8


# --- rows that lack columns ------------------------------------------------------------------------------------------


def test_the_open_row_is_the_newest_step_and_what_it_lacks_is_masked(make_table: TableMaker) -> None:
    table = make_table(item_steps=3)
    writer = table.writer()
    writer.append(step(1))
    writer.append(step(2))
    writer.append({"n": 3, "pair": Pair(1.5, None)}, partial=True)
    writer.create_item(length=3)
    writer.create_item(length=1)
    writer.end_episode()
    writer.close()
    batch = live(table)
    has = {"n": True, "x": False, "image": False, "half": True, "odd": False}
    for path in PATHS:
        assert by_path(batch.mask)[path].tolist() == [[True, True, has[path]], [has[path], False, False]]
        assert by_path(batch.lengths)[path].tolist() == [2 + has[path], int(has[path])]
        rows = by_path(batch.data)[path]
        assert rows[0, :2].tolist() == columns_of([1, 2])[path].tolist()
        if not has[path]:
            assert not rows[0, 2].any()
            assert not rows[1].any()
    assert batch.data["n"].tolist() == [[1, 2, 3], [3, 0, 0]]
    assert batch.steps.tolist() == [0, 2]


def test_cells_that_a_row_lacks_are_zero_whatever_was_in_the_memory(make_table: TableMaker) -> None:
    """The arena has been written over and over before: what is missing must not shine through."""
    table = make_table(3, item_steps=2, chunk_steps=2, capacity_steps=6, max_streams=1)
    writer = table.writer()
    for n in range(100, 400):
        writer.append(step(n))
        writer.create_item(length=1)
        if n % 5 == 0:
            writer.append({"n": n + 1000}, partial=True)
            writer.create_item(length=2)
            writer.end_episode()
            batch = table.get(table.keys()[-1:])
            assert batch.data["n"].tolist() == [[n, n + 1000]]
            for path in PATHS[1:]:
                assert by_path(batch.mask)[path].tolist() == [[True, False]]
                assert not by_path(batch.data)[path][0, 1].any()
    writer.close()


def test_an_open_row_is_filled_bit_by_bit(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer() as writer:
        writer.append(part_of_step(7, {"n"}), partial=True)
        assert writer.episode_steps == 0
        writer.append(part_of_step(7, {"x", "half"}), partial=True)
        with pytest.raises(sr.SignatureMismatch, match=r"column 'x': the open row has it already"):
            writer.append(part_of_step(7, {"x"}), partial=True)
        with pytest.raises(sr.SignatureMismatch, match=r"missing, and this append would finish the row; give 'pair.odd' "):
            writer.append(part_of_step(7, {"image"}))
        writer.append(part_of_step(7, {"image", "odd"}))
        assert writer.episode_steps == 1
        writer.append(step(8))
        writer.create_item(length=2)
    assert spans(live(table)) == [[7, 8]]


def test_an_item_made_of_an_open_row_does_not_change_when_the_row_is_finished(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with table.writer() as writer:
        writer.append(step(1))
        writer.append(part_of_step(2, {"n"}), partial=True)
        writer.create_item(length=2)
        writer.append(part_of_step(2, {"x", "image", "half", "odd"}))
        writer.create_item(length=2)
    batch = live(table)
    assert batch.mask["x"].tolist() == [[True, False], [True, True]]
    assert batch.data["x"][0, 1].tolist() == [0] * 5
    assert batch.data["x"][1, 1].tolist() == columns_of(2)["x"].tolist()


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


def test_an_item_may_not_reach_over_a_step_that_lacks_a_column(make_table: TableMaker) -> None:
    table = make_table(item_steps=4)
    with table.writer() as writer:
        writer.append(step(1))
        writer.append(part_of_step(2, {"n"}), partial=True)
        writer.end_episode(clear_history=False)
        with pytest.raises(sr.SignatureMismatch, match="has no column for a part of the signature: the final step"):
            writer.create_item(length=1)
        writer.append(step(3))
        with pytest.raises(sr.SignatureMismatch, match="expected a length of at most 1"):
            writer.create_item(length=2)
        writer.append(part_of_step(4, {"x"}), partial=True)
        with pytest.raises(sr.SignatureMismatch, match="expected a length of at most 2"):
            writer.create_item(length=3)
        writer.create_item(length=2)
    assert live(table).data["n"].tolist() == [[3, 0, 0, 0]]
    assert live(table).data["x"][0, :2].tolist() == columns_of([3, 4])["x"].tolist()


def test_history_that_is_not_cleared_reaches_back_into_the_last_episode(make_table: TableMaker) -> None:
    table = make_table(item_steps=4)
    with table.writer() as writer:
        for n in range(3):
            writer.append(step(n))
        writer.end_episode(clear_history=False)
        writer.append(step(3))
        writer.create_item(length=4)
        writer.end_episode()
        writer.append(step(4))
        with pytest.raises(ValueError, match="length is 2, but the writer holds 1 steps of this episode"):
            writer.create_item(length=2)
    batch = live(table)
    assert spans(batch) == [[0, 1, 2, 3]]
    assert batch.steps.tolist() == [-3]  # three steps before its episode began


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
                "observation if there is one, before the next append"
            )
        writer.append({"observation": np.zeros(2, np.float32)}, partial=True)  # the final observation belongs here
        writer.end_episode()
        writer.append(episodic(3))
        writer.create_item(length=1)
    assert live(table).data["action"].tolist() == [[3, 0]]


# --- misuse ----------------------------------------------------------------------------------------------------------


def test_lengths_that_are_none_are_refused(make_table: TableMaker) -> None:
    table = make_table(item_steps=3)
    with table.writer(history=3) as writer:
        with pytest.raises(ValueError, match="length is 1, but the writer holds 0 steps of this episode"):
            writer.create_item(length=1)
        for n in range(9):
            writer.append(step(n))
        for length in (0, 4, -1):
            with pytest.raises(
                ValueError, match=rf"length is {length}, but the writer holds 3 steps of this episode \(history=3\)"
            ):
                writer.create_item(length=length)
        with pytest.raises(TypeError, match="length is None; expected a number of steps"):
            writer.create_item()
        with pytest.raises(ValueError, match="priority is nan; priorities must be finite"):
            writer.create_item(float("nan"), length=1)
        with pytest.raises(TypeError, match="priority is 'x'; expected a number"):
            writer.create_item("x", length=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="history is 0; expected 1 to"):
        table.writer(history=0)
    assert len(table) == 0


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
    singles, longer = make_table(), make_table(item_steps=2)
    singles.insert(step(1))
    with singles.writer(history=2) as writer:
        writer.append(step(2))
        with pytest.raises(sr.SignatureMismatch, match="its items are single steps"):
            writer.create_item(length=1)
    with longer.writer() as writer:
        writer.append(step(1))
        writer.create_item(length=1)
    with pytest.raises(sr.SignatureMismatch, match="the item has another structure than the items of its table"):
        longer.insert(step(2))
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
        with pytest.raises(sr.ShmReplayError, match="the writer is in use by another thread; give each thread a writer"):
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
        with pytest.raises(sr.ShmReplayError, match="spans more chunks than one item may; create the table with larger"):
            writer.create_item(length=400)
        writer.create_item(length=20)
    assert spans(live(table)) == [list(range(380, 400))]


def test_all_streams_open_is_an_error_that_says_what_to_do(make_table: TableMaker) -> None:
    table = make_table(item_steps=2, max_streams=2)
    writers = [table.writer() for _ in range(3)]
    for writer in writers[:2]:
        writer.append(step(1))
    with pytest.raises(sr.ShmReplayError, match="all streams of the arena are open; close writers or raise max_streams"):
        writers[2].append(step(1))
    writers[0].close()
    writers[2].append(step(1))
    for writer in writers:
        writer.close()
    assert check(table) == []


def test_what_writers_can_not_do_yet_says_so(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    with pytest.raises(ValueError, match=r"patterns= .*not supported yet"):
        table.writer(patterns=[1])
    with pytest.raises(ValueError, match="commit_every is 3; other than 1 is not supported yet"):
        table.writer(commit_every=3)
    with table.writer() as writer:
        writer.append(step(1))
        for options in ({"trajectory": {}}, {"values": {}}, {"table": "other"}):
            [name] = options
            with pytest.raises(ValueError, match=f"{name}= comes with trajectories and is not supported yet"):
                writer.create_item(length=1, **options)  # type: ignore[arg-type]


def padding_of(batch: Batch) -> NDArray[np.bool_]:
    return ~by_path(batch.mask)["n"]


def test_padding_is_zero_in_every_batch(make_table: TableMaker, rng: np.random.Generator) -> None:
    table = make_table(200, item_steps=6, chunk_steps=4)
    with table.writer() as writer:
        for n in range(1, 200):
            writer.append(step(n))
            writer.create_item(length=int(rng.integers(1, min(n, 6) + 1)))
    for _ in range(20):
        batch = table.sample(64)
        spans(batch)
        assert padding_of(batch).any()
        assert by_path(batch.data)["n"].shape == (64, 6)
