"""Views: arrays on the segment itself, leased until the release; where that is impossible, copies that say so."""

import gc
import logging
import mmap
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay import _core
from tests.support.children import Fork
from tests.support.tables import TableMaker, by_path, check, columns_of, leased, step, steps, values
from tests.support.waiting import WAIT_S, eventually


def lies_in_a_segment(array: NDArray[Any]) -> bool:
    """Whether its memory is mapped from a shared-memory object."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= address < last:
                return ".data" in line and "shmreplay" in line
    return False


def test_a_view_is_the_memory_itself_read_only_and_in_the_items_structure(make_table: TableMaker) -> None:
    table = make_table(10, sampler=sr.selectors.Fifo())
    key = table.insert(step(7), 3.0)
    with table.view(1) as items, table.view(1) as again:
        assert len(items) == 1
        [item] = items
        data, expected = by_path(item.data), columns_of(7)
        for name, array in data.items():
            assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape)
            np.testing.assert_array_equal(array, expected[name])
            assert lies_in_a_segment(array)
            assert not array.flags.writeable
            assert np.shares_memory(array, by_path(again[0].data)[name])
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True
        assert by_path(item.is_view) == dict.fromkeys(data, True)
        assert all(mask.shape == () and mask for mask in by_path(item.mask).values())
        assert (item.key, item.priority, item.probability, item.step, item.age) == (key, 3.0, 1.0, 0, 0)
        assert (item.times_sampled, again[0].times_sampled) == (1, 2)
        assert item.episode == table.get([key]).episodes[0]
        assert item.insert_number == 1
        assert items.keys.tolist() == [key]
        assert items.keys.dtype == np.int64
        assert items[-1].key == key
        with pytest.raises(TypeError, match="slice"):
            items[:1]  # type: ignore[index]  # that is what is being found out
        assert leased(table)
    assert not leased(table)
    assert table.info().samples == 2


def test_a_view_samples_as_sample_does(make_table: TableMaker) -> None:
    prioritized = sr.selectors.Prioritized(0.7)
    first = make_table(50, sampler=prioritized, seed=3)
    second = make_table(50, sampler=prioritized, seed=3)
    for table in (first, second):
        table.insert_batch(steps(range(50)), np.arange(50.0))
    batch = first.sample(40)
    with second.view(40) as items:
        assert [int(item.data["n"]) for item in items] == batch.data["n"].tolist()
        for name in ("probabilities", "priorities", "times_sampled", "steps", "ages"):
            single = {"probabilities": "probability", "priorities": "priority"}.get(name, name.rstrip("s"))
            single = "times_sampled" if name == "times_sampled" else single
            assert [getattr(item, single) for item in items] == getattr(batch, name).tolist()


def test_spans_and_slices_with_steps_are_strided_views(make_table: TableMaker) -> None:
    table = make_table(10, chunk_steps=16)
    with table.writer(history=8) as writer:
        for n in range(8):
            writer.append(step(n))
        h = writer.history
        writer.create_item(
            trajectory={
                "all": h["x"][-8:],
                "odd": h["x"][1::2],
                "back": h["image"][::-1],
                "last": h["n"][-1],
                "one": h["n"][3:4],
                "again": h["n"][[2, 2, 2]],
                "mixed": h["n"][[0, 1, 5]],
            }
        )
    whole = columns_of(np.arange(8))
    with table.view(1) as items:
        [item] = items
        data = item.data
        np.testing.assert_array_equal(data["all"], whole["x"])
        np.testing.assert_array_equal(data["odd"], whole["x"][1::2])
        np.testing.assert_array_equal(data["back"], whole["image"][::-1])
        assert data["last"].shape == ()
        assert (data["last"], data["one"].tolist(), data["again"].tolist()) == (7, [3], [2, 2, 2])
        assert data["mixed"].tolist() == [0, 1, 5]
        assert item.is_view == {**dict.fromkeys(data, True), "mixed": False}
        assert np.shares_memory(data["all"], data["odd"])
        assert data["odd"].strides[0] == 2 * data["all"].strides[0]
        assert not lies_in_a_segment(data["mixed"])
        assert not data["mixed"].flags.writeable


def test_rows_in_several_chunks_are_a_copy_and_equal_what_sample_gives(make_table: TableMaker) -> None:
    table = make_table(100, chunk_steps=4, sampler=sr.selectors.Fifo())
    with table.writer(history=6) as writer:
        for n in range(40):
            writer.append(step(n))
            if n >= 5:
                writer.create_item(length=3)
    seen = set()
    for key in table.keys().tolist():
        with table.view(1) as items:
            [item] = items
            data = by_path(item.data)
            first = int(data["n"][0])
            for name, array in data.items():
                np.testing.assert_array_equal(array, columns_of(np.arange(first, first + 3))[name])
            is_view = set(by_path(item.is_view).values())
            assert is_view == {first % 4 <= 1}
            seen |= is_view
            assert item.key == table.keys()[0]
        table.delete([key])
    assert seen == {True, False}


def test_padding_is_a_copy_with_its_mask_and_what_is_whole_is_not(make_table: TableMaker) -> None:
    signature = {"observation": np.zeros(2, np.float32), "action": np.int64(0)}
    window = sr.Window({"observation": (-2, 2), "action": (0, 1)}, at_start="zeros")
    table = make_table(10, signature=signature, item=window, sampler=sr.selectors.Fifo(), chunk_steps=16)
    with table.writer() as writer:
        for n in range(3):
            writer.append({"observation": np.full(2, n + 1, np.float32), "action": n})
        writer.end_episode({"observation": np.full(2, 4, np.float32)})
    batch = table.get(table.keys())
    with table.view(1) as items:
        [item] = items
        np.testing.assert_array_equal(item.data["observation"], batch.data["observation"][0])
        np.testing.assert_array_equal(item.mask["observation"], batch.mask["observation"][0])
        assert not item.mask["observation"].all()
        assert item.is_view["observation"] is False
        assert item.is_view["action"] is True
        assert item.mask["action"].shape == item.data["action"].shape


def test_what_a_view_names_stays_as_it_is_and_all_else_is_reused(make_table: TableMaker) -> None:
    table = make_table(64, chunk_steps=4, max_streams=4)
    table.insert_batch(steps(range(64)))
    with table.view(8) as items:
        before = [int(item.data["n"]) for item in items]
        for n in range(1000, 5000, 50):
            table.insert_batch(steps(range(n, n + 50)))
        assert not np.isin(items.keys, table.keys()).any()
        for item, n in zip(items, before, strict=True):
            for name, array in by_path(item.data).items():
                np.testing.assert_array_equal(array, columns_of(n)[name])
        assert check(table) == []
        kept = items[0].data["n"]
    for n in range(5000, 9000, 50):
        table.insert_batch(steps(range(n, n + 50)))
    assert int(kept) >= 5000  # other steps, as the docstring says; and no fault
    values(table)


def test_release_is_idempotent_and_ends_what_the_items_show(make_table: TableMaker) -> None:
    table = make_table(4)
    table.insert(step(1))
    items = table.view(2)
    item = items[1]
    assert not items.is_released
    items.release()
    items.release()
    assert items.is_released
    assert not leased(table)
    for look in (lambda: item.data, lambda: items[0].data, items.__enter__):
        with pytest.raises(sr.ShmReplayError, match=f"View of 2 items of table '{table.name}'> was released; copy"):
            look()
    assert item.key == items.keys[1]


def test_a_view_that_is_garbage_is_released_and_its_arrays_are_not(make_table: TableMaker) -> None:
    table = make_table(4)
    table.insert(step(1))
    item = table.view(1)[0]
    assert leased(table)  # an item keeps its view
    array = item.data["x"]
    del item
    gc.collect()
    assert not leased(table)
    np.testing.assert_array_equal(array, columns_of(1)["x"])


def test_an_error_in_the_block_releases_too(make_table: TableMaker) -> None:
    table = make_table(4)
    table.insert(step(1))
    with pytest.raises(ZeroDivisionError), table.view(1):
        _ = 1 / 0
    assert not leased(table)


def test_closing_the_client_releases_its_views_and_arrays_stay_readable(
    make_table: TableMaker, server: sr.Server
) -> None:
    """The session stays: the test's own client uses the same one."""
    table = make_table(4)
    table.insert(step(3))
    client = server.client()
    items = client.table(table.name).view(1)
    kept = items[0].data
    client.close()
    assert items.is_released
    assert not leased(table)
    np.testing.assert_array_equal(by_path(kept)["image"], columns_of(3)["image"])
    items.release()
    with pytest.raises(sr.ShmReplayError, match=r"client of .* is closed"):
        client.table(table.name)


def test_arrays_outlive_table_and_server() -> None:
    table = sr.Table("replay", {"x": np.zeros(1000, np.float64)}, 4, max_streams=2, max_sessions=4)
    with sr.Server(tables=[table]) as server, server.client() as client:
        handle = client.table("replay")
        handle.insert({"x": np.arange(1000.0)})
        items = handle.view(1)
        kept = items[0].data["x"]
    np.testing.assert_array_equal(kept, np.arange(1000.0))
    assert not kept.flags.writeable
    items.release()


def test_a_forked_child_can_read_a_view_but_not_give_it_back(make_table: TableMaker, fork: Fork) -> None:
    table = make_table(4)
    table.insert(step(5))
    with table.view(1) as items:

        def work(_: object) -> bool:
            same = bool((items[0].data["x"] == columns_of(5)["x"]).all())
            items.release()
            with table.view(1) as own:  # attaches anew
                return same and leased(table) and len(own) == 1

        assert fork(work).result()
        assert leased(table)
        np.testing.assert_array_equal(items[0].data["x"], columns_of(5)["x"])
    assert not leased(table)


def take_all_room(table: sr.TableHandle) -> list[sr.View]:
    """Views of so much that the next insert finds no chunk."""
    views: list[sr.View] = []

    def go_on() -> None:
        for n in range(100, 300):
            table.insert(step(n), timeout_s=0)
            views.append(table.view(1))

    with pytest.raises(sr.RateLimitTimeout):
        go_on()
    return views


def test_a_process_killed_with_views_gives_their_chunks_back(make_table: TableMaker, fork: Fork) -> None:
    table = make_table(4, chunk_steps=1, capacity_steps=4, max_streams=2, sampler=sr.selectors.Lifo())

    def work(pipe: Any) -> None:
        views = take_all_room(table)
        pipe.send(len(views))
        pipe.recv()

    child = fork(work)
    assert child.receive() > 4
    with pytest.raises(sr.RateLimitTimeout, match="are still being read, 0 are free"):
        table.insert(step(1), timeout_s=0)
    child.kill()
    for n in range(300, 400):
        table.insert(step(n), timeout_s=WAIT_S)
    assert values(table)[-1] == 399


# --- counts, consuming tables, timeouts ------------------------------------------------------------------------------


def test_a_view_consumes_and_shows_what_is_gone_from_the_table(make_table: TableMaker) -> None:
    table = make_table.queue(8)
    table.insert_batch(steps(range(8)))
    with table.view(8) as items:
        assert len(table) == 0
        table.insert_batch(steps(range(8, 16)), timeout_s=0)
        assert [int(item.data["n"]) for item in items] == list(range(8))
        assert all(by_path(item.is_view)["n"] for item in items)


def test_a_timeout_carries_copies_of_what_was_drawn(make_table: TableMaker) -> None:
    table = make_table.queue(8)
    table.insert_batch(steps(range(3)))
    with pytest.raises(
        sr.RateLimitTimeout, match=r"view not admitted within 0\.05 s after 3 of 5 items, .*\.batch"
    ) as raised:
        table.view(5, timeout_s=0.05)
    items = raised.value.batch
    assert not leased(table)
    assert [int(item.data["n"]) for item in items] == [0, 1, 2]
    assert not any(by_path(item.is_view)["n"] for item in items)
    np.testing.assert_array_equal(items[2].data["image"], columns_of(2)["image"])
    with pytest.raises(sr.RateLimitTimeout) as raised:
        table.view(5, timeout_s=0)
    assert raised.value.batch is None


def test_what_was_drawn_before_a_wait_is_a_copy_and_what_came_after_is_not(make_table: TableMaker) -> None:
    table = make_table.queue(8)
    table.insert_batch(steps(range(2)))
    found: list[sr.View] = []
    thread = threading.Thread(target=lambda: found.append(table.view(3)))
    thread.start()
    eventually(lambda: table.info().blocked_samples == 1)
    assert not leased(table)
    table.insert(step(2))
    thread.join(WAIT_S)
    with found[0] as items:
        assert [int(item.data["n"]) for item in items] == [0, 1, 2]
        assert [by_path(item.is_view)["n"] for item in items] == [False, False, True]


def test_a_signal_carries_copies_too(make_table: TableMaker) -> None:
    table = make_table.queue(8)
    table.insert_batch(steps(range(2)))

    def interrupt() -> None:
        eventually(lambda: table.info().blocked_samples == 1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as raised:
        table.view(3)
    thread.join(WAIT_S)
    assert [int(item.data["n"]) for item in raised.value.batch] == [0, 1]  # type: ignore[attr-defined]
    assert not leased(table)


def test_more_than_a_lease_can_name_is_refused_with_the_number(make_table: TableMaker) -> None:
    table = make_table(1000)
    table.insert_batch(steps(range(1000)))
    with pytest.raises(ValueError, match=r"n is 833; a view names .* use n=832 or less, several views, or sample\(\)"):
        table.view(833)
    with table.view(832) as items:
        assert all(by_path(item.is_view)["n"] for item in items)
    long = make_table(1000, item_steps=9, chunk_steps=4)
    assert _core.VIEW_CHUNKS // 3 == 277
    with pytest.raises(ValueError, match="an item of this table may touch 3: use n=277 or less"):
        long.view(278)
    for n, error in ((0, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match=f"n is {n}; expected"):
            table.view(n)  # type: ignore[arg-type]
    assert table.info().samples == 832


def test_a_writer_that_waits_for_a_chunk_of_its_own_view_is_told_so(
    make_table: TableMaker, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(4, chunk_steps=1, capacity_steps=4, max_streams=1, sampler=sr.selectors.Lifo())
    views = take_all_room(table)
    with pytest.raises(sr.RateLimitTimeout) as raised, caplog.at_level(logging.WARNING, "shmreplay"):
        table.insert(step(4), timeout_s=1.5)
    own = "are still being read (some by this process itself: a view keeps its chunks until it is released)"
    assert own in str(raised.value)
    assert [own in record.getMessage() for record in caplog.records if "blocked for " in record.getMessage()] == [True]
    for view in views:
        view.release()
    table.insert(step(100), timeout_s=0)


def test_releasing_a_view_wakes_the_writer_that_waits_for_its_chunks(make_table: TableMaker) -> None:
    table = make_table(4, chunk_steps=1, capacity_steps=4, max_streams=1, sampler=sr.selectors.Lifo())
    views = take_all_room(table)
    done = threading.Event()

    def insert() -> None:
        table.insert(step(200))
        done.set()

    thread = threading.Thread(target=insert)
    thread.start()
    assert not done.wait(0.2)
    for view in views:
        view.release()
    assert done.wait(WAIT_S)
    thread.join(WAIT_S)


def test_pages_are_not_copied(make_table: TableMaker) -> None:
    """A column of many pages lies as the segment has it, page-aligned or not, and ends within it."""
    table = make_table(4, signature={"frame": np.zeros((64, mmap.PAGESIZE), np.uint8)})
    frame = np.random.default_rng(1).integers(0, 255, (64, mmap.PAGESIZE), dtype=np.uint8)
    table.insert({"frame": frame})
    with table.view(3) as items:
        first = items[0].data["frame"]
        assert first.flags.c_contiguous
        assert first.base is not None
        assert all(np.shares_memory(first, item.data["frame"]) for item in items)
        np.testing.assert_array_equal(first, frame)
