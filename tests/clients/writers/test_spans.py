"""Items of several steps: what is in them, masks and lengths, chunk borders, and rows that lack columns."""

import threading

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from tests.support.tables import PATHS, Pair, TableMaker, by_path, columns_of, live, part_of_step, spans, step

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
    table = make_table()
    with table.writer(history=7) as writer:
        for n in range(7):
            writer.append(step(n))
        writer.create_item(length=2)
        assert by_path(live(table).data)["n"].shape == (1, 2)
        writer.create_item(length=7)
    assert spans(live(table)) == [[5, 6], [0, 1, 2, 3, 4, 5, 6]]


def test_a_longer_item_that_comes_in_the_middle_of_a_sample_widens_that_batch(make_table: TableMaker) -> None:
    """The call has drawn some items and waits for more when an item comes that is longer than all before."""
    table = make_table.queue(10)
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
    episode_of: dict[int, int] = {}
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


def test_padding_is_zero_in_every_batch(make_table: TableMaker, rng: np.random.Generator) -> None:
    table = make_table(200, item_steps=6, chunk_steps=4)
    with table.writer() as writer:
        for n in range(1, 200):
            writer.append(step(n))
            writer.create_item(length=int(rng.integers(1, min(n, 6) + 1)))
    for _ in range(20):
        batch = table.sample(64)
        spans(batch)
        assert not by_path(batch.mask)["n"].all()
        assert by_path(batch.data)["n"].shape == (64, 6)


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
        text = r"column 'x': the open row has it already; .* If it was the final observation, call end_episode\(\)"
        with pytest.raises(sr.SignatureMismatch, match=text):
            writer.append(part_of_step(7, {"x"}), partial=True)
        with pytest.raises(
            sr.SignatureMismatch, match=r"missing, and this append would finish the row; give 'pair.odd' "
        ):
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
