"""Columns in the heap in calls that end half-way, wait, fork, or feed several tables."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.children import Fork
from tests.support.heap_columns import COLUMNS, check_rows, image_of, points_of, step, steps
from tests.support.tables import TableMaker, check
from tests.support.waiting import eventually


def test_what_a_sample_drew_before_its_time_was_up_is_whole(make_table: TableMaker) -> None:
    table = make_table.queue(10, signature=COLUMNS)
    table.insert_batch(steps([4, 5, 6]))
    with pytest.raises(sr.RateLimitTimeout) as caught:
        table.sample(5, timeout_s=0)
    check_rows(caught.value.batch, [4, 5, 6])
    assert len(table) == 0


def test_a_longer_item_that_comes_in_while_a_sample_waits_widens_it(make_table: TableMaker) -> None:
    table = make_table.queue(10, signature=COLUMNS, item_steps=3, chunk_steps=2)
    with table.writer() as writer:
        writer.append(step(4))
        writer.create_item(length=1)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(table.sample(3)))
        thread.start()
        eventually(lambda: table.info().samples == 1)
        writer.append(step(5))
        writer.create_item(length=2)
        eventually(lambda: table.info().samples == 2)
        writer.append(step(7))
        writer.create_item(length=3)
        thread.join()
    check_rows(found[0], [[4, None, None], [4, 5, None], [4, 5, 7]])


def test_inserts_that_wait_go_in_as_they_were(make_table: TableMaker) -> None:
    table = make_table.queue(2, signature=COLUMNS)
    batch = steps(list(range(1, 8)))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(table.insert_batch(batch).tolist()))
    thread.start()
    check_rows(table.sample(7), list(range(1, 8)))
    thread.join()
    assert len(found) == 7


def test_a_batch_that_is_admitted_in_part_can_be_repeated_for_the_rest(make_table: TableMaker) -> None:
    table = make_table.queue(3, signature={**COLUMNS, "goal": sr.ArraySpec((None,), "int32", per="item")})
    goals = [np.arange(n, dtype="i4") for n in range(5)]
    batch = {**steps([1, 2, 3, 4, 5]), "goal": goals}
    with pytest.raises(sr.RateLimitTimeout) as caught:
        table.insert_batch(batch, timeout_s=0)
    assert caught.value.keys is not None
    assert len(caught.value.keys) == 3
    first = table.sample(3)
    assert first.sizes["goal"].tolist() == [[0], [1], [2]]
    table.insert_batch({name: value[3:] for name, value in batch.items()}, timeout_s=0)
    rest = table.sample(2)
    assert rest.data["n"].tolist() == [4, 5]
    assert rest.data["goal"].tolist() == [[0, 1, 2, 0], [0, 1, 2, 3]]
    assert check(table) == []


def test_an_append_that_waits_for_its_item_can_be_repeated(make_table: TableMaker) -> None:
    table = make_table.queue(1, signature=COLUMNS, item=sr.Sequence(1))
    with table.writer() as writer:
        writer.append(step(1), timeout_s=0)
        for _ in range(20):
            with pytest.raises(sr.RateLimitTimeout):
                writer.append(step(2), timeout_s=0)
        check_rows(table.sample(1), [[1]])
        writer.append(step(2), timeout_s=0)
        check_rows(table.sample(1), [[2]])
        writer.append({"n": 4}, partial=True)
        rest = {name: value for name, value in step(4).items() if name != "n"}
        writer.append(rest, timeout_s=0)
        with pytest.raises(sr.RateLimitTimeout):
            writer.append(step(6), timeout_s=0)
        check_rows(table.sample(1), [[4]])
    assert check(table) == []


def test_rows_that_a_mask_leaves_out_may_have_anything_in_a_list(make_table: TableMaker) -> None:
    table = make_table(100, signature=COLUMNS, item=sr.Sequence(1))
    batch = {**steps([1, 2, 3]), "points": [None, points_of(2), "nothing"]}
    mask = np.array([False, True, False])
    with table.vector_writer(3) as writer:
        writer.append(batch, mask=mask)
        writer.append({"points": batch["points"]}, mask=mask, partial=True)
        rest = {name: values for name, values in batch.items() if name != "points"}
        writer.append(rest, mask=mask)
        check_rows(table.get(table.keys()), [[2], [2]])
        writer.end_episodes(mask, {"points": batch["points"]})
        assert writer.num_steps.tolist() == [0, 0, 0]
        with pytest.raises(sr.SignatureMismatch, match="step 0 of the batch, column 'points': is None"):
            writer.append(batch)
    free = make_table(10, signature=None, item_steps=2)
    with free.vector_writer(2) as writer:
        writer.append([object(), "a"], mask=mask[:2])
        writer.create_items(1, mask=mask[:2])
    assert free.get(free.keys()).data == [["a"]]


def test_the_end_of_an_episode_that_waits_can_be_repeated(make_table: TableMaker) -> None:
    item = sr.Window({"note": (0, 2), "points": (0, 2)}, at_end="pad")
    table = make_table.queue(1, signature=COLUMNS, item=item)
    with table.writer() as writer:
        writer.append(step(1))
        writer.append(step(2))
        final = {"points": points_of(4)}
        for _ in range(5):
            with pytest.raises(sr.RateLimitTimeout):
                writer.end_episode(final, timeout_s=0)
        assert table.sample(1).sizes["points"].tolist() == [[[1], [2]]]
        assert len(writer.end_episode(final, timeout_s=0)) == 1
        batch = table.sample(1)
        assert batch.sizes["points"].tolist() == [[[2], [4]]]
        assert batch.mask["note"].tolist() == [[True, False]]


def test_one_writer_feeds_several_tables_with_values_of_their_own(make_table: TableMaker) -> None:
    signature = {**COLUMNS, "goal": sr.ArraySpec((2,), "int64", per="item", optional=True)}
    shared: dict[str, Any] = {"arena": "both-heaps", "chunk_steps": 3, "max_streams": 4, "max_sessions": 4}
    tables = [sr.Table("first-heap", signature, 50, **shared), sr.Table.queue("second-heap", signature, 50, **shared)]
    make_table.client.create_tables(tables)
    first, second = make_table.client.table("first-heap"), make_table.client.table("second-heap")
    with first.writer(history=4, patterns=[sr.Sequence(2, table="second-heap")]) as writer:
        for n in range(10):
            writer.append(step(n))
            trajectory = {"n": writer.history["n"][-1], "points": writer.history["points"][-1]}
            writer.create_item(trajectory=trajectory, values={"goal": np.array([n, 1])})
    batch = first.get(first.keys())
    assert batch.data["goal"].tolist() == [[n, 1] for n in range(10)]
    assert batch.sizes["points"].tolist() == [[n % 5] for n in range(10)]
    first.reset()
    drawn = second.sample(9)
    assert drawn.data["n"].tolist() == [[n, n + 1] for n in range(9)]
    np.testing.assert_array_equal(drawn.data["image"][4, 1], image_of(5))
    assert drawn.mask["goal"].tolist() == [False] * 9
    assert check(first) == []


def test_a_forked_child_reads_and_writes_with_handles_of_its_own(make_table: TableMaker, fork: Fork) -> None:
    table = make_table(500, signature=COLUMNS, max_streams=8)
    table.insert_batch(steps(list(range(64))))

    def work(pipe: Any) -> int:
        check_rows(table.get(table.keys()), list(range(64)))
        for n in range(64, 100):
            table.insert(step(n))
        return os.getpid()

    assert fork(work).result() != os.getpid()
    check_rows(table.get(table.keys()), list(range(100)))


def test_the_threads_that_decode_are_made_anew_in_a_forked_child(make_table: TableMaker, fork: Fork) -> None:
    spec = sr.ArraySpec((256, 256), "uint8", compression="lz4", mean_bytes=400)
    table = make_table(64, signature={"x": spec})
    for n in range(64):
        table.insert({"x": np.full((256, 256), n, np.uint8)})

    def look() -> int:
        data = table.get(table.keys()).data["x"]  # 4 MiB: worth the threads
        assert (data == np.arange(64, dtype=np.uint8)[:, None, None]).all()
        return int(data.nbytes)

    assert look() == 64 * 256 * 256
    assert fork(lambda pipe: look()).result() == 64 * 256 * 256
