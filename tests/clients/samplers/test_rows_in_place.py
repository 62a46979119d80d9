"""Rows of a view by their numbers in the arena, and whole columns of the arena as one strided array."""

import gc
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from tests.support.tables import TableMaker, columns_of, live, step, steps
from tests.support.waiting import WAIT_S, eventually

WINDOW = sr.Window({"n": (-2, 3), "x": ("x", 1, 3), "image": 0}, at_start="repeat", at_end="pad")


def column(table: sr.TableHandle, index: int) -> NDArray[Any]:
    """`[num_chunks, chunk_steps, *shape]`."""
    found: NDArray[Any] = np.from_dlpack(table._native.column(index))
    return found


def looked_up(table: sr.TableHandle, index: int, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """The rows of those numbers, and 0 for -1."""
    rows = column(table, index)
    found: NDArray[Any] = rows[numbers // rows.shape[1], numbers % rows.shape[1]]
    found[numbers < 0] = 0
    return found


def test_the_numbers_of_a_views_rows_lead_to_what_a_batch_shows(make_table: TableMaker) -> None:
    table = make_table.queue(100, item=WINDOW, chunk_steps=4)
    with table.writer() as writer:
        for n in range(10):
            writer.append(step(n))
        writer.end_episode(step(10))
    batch = live(table)
    assert not batch.mask["n"].all()
    with table.view(len(batch)) as items:
        native: Any = items._native
        names, squeezed, columns = native.structure()
        assert (list(squeezed), list(columns)) == ([False, False, True], [0, 1, 2])
        assert names
        for output, name in enumerate(("n", "x", "image")):
            numbers, is_real = native.row_numbers(output)
            assert numbers.dtype == np.int64
            np.testing.assert_array_equal(looked_up(table, output, numbers), batch.data[name])
            np.testing.assert_array_equal(is_real, batch.mask[name])
        assert (native.row_numbers(0)[0] < 0).any()
        with pytest.raises(IndexError, match="no output of that number"):
            native.row_numbers(3)
    assert native.structure() is None
    with pytest.raises(sr.ShmReplayError, match="were given back"):
        native.row_numbers(0)


def test_a_views_numbers_are_as_many_as_a_batch_has_rows(make_table: TableMaker) -> None:
    """An item that is shorter than the table's longest item is padded, whatever other items are in the view."""
    table = make_table(10, item_steps=6, chunk_steps=4, sampler=sr.selectors.Lifo())
    with table.writer() as writer:
        for n in range(6):
            writer.append(step(n))
        writer.create_item(length=5)
        writer.create_item(length=2)
    with table.view(3) as items:
        numbers, is_real = items._native.row_numbers(0)  # type: ignore[union-attr]
        assert numbers.shape == is_real.shape == (3, 6)
        assert is_real.tolist() == [[True, True, False, False, False, False]] * 3
        assert looked_up(table, 0, numbers).tolist() == [[4, 5, 0, 0, 0, 0]] * 3


def test_copies_have_no_row_numbers(make_table: TableMaker) -> None:
    table = make_table.queue(8)
    table.insert_batch(steps(range(2)))
    found: list[sr.View] = []
    thread = threading.Thread(target=lambda: found.append(table.view(3)))
    thread.start()
    eventually(lambda: table.info().blocked_samples == 1)
    table.insert(step(2))
    thread.join(WAIT_S)
    with found[0] as items:
        numbers, is_real = items._native.row_numbers(0)  # type: ignore[union-attr]
        assert is_real.tolist() == [False, False, True]
        assert numbers[:2].tolist() == [-1, -1]
        assert looked_up(table, 0, numbers).tolist() == [0, 0, 2]
        assert [int(item.data["n"]) for item in items] == [0, 1, 2]
        assert items._num_copies == 2


def test_a_column_of_the_arena_is_the_segment_itself_read_only(make_table: TableMaker) -> None:
    table = make_table(10, chunk_steps=4)
    table.insert_batch(steps(range(8)))
    arena = table._arena
    images = column(table, 2)
    stats = arena.stats()
    assert images.shape == (stats["num_chunks"], 4, 3, 2)
    assert images.dtype == np.uint8
    assert images.strides == (arena.chunk_bytes, 6, 2, 1)
    assert not images.flags.writeable
    assert arena.data_address <= images.__array_interface__["data"][0] < arena.data_address + arena.chunk_bytes
    assert (arena.chunk_bytes, arena.data_bytes) == (stats["chunk_bytes"], stats["data_bytes"])
    with table.view(1) as items:
        shown = items[0].data["image"]
        [number] = items._native.row_numbers(2)[0]  # type: ignore[union-attr]
        row = images[number // 4, number % 4]
        assert row.__array_interface__["data"][0] == shown.__array_interface__["data"][0]
        np.testing.assert_array_equal(row, columns_of(int(items[0].data["n"]))["image"])


def test_a_column_says_what_kind_of_memory_it_is_asked_for_as(make_table: TableMaker) -> None:
    table = make_table(10)
    for device in ((1, 0), (3, 0), (2, 1)):
        exported: Any = table._native.column(0, *device)
        assert exported.__dlpack_device__() == device
    with pytest.raises(BufferError, match="Only CPU-allocated"):
        memoryview(exported)


def test_a_column_that_does_not_lie_plain_or_has_a_type_that_dlpack_lacks_is_refused(make_table: TableMaker) -> None:
    signature = {
        "plain": sr.ArraySpec((2,), ml_dtypes.bfloat16),
        "narrow": sr.ArraySpec((), ml_dtypes.float8_e5m2),
        "state": sr.ArraySpec((2,), "float32", mutable=True),
        "text": sr.ArraySpec((None,), "uint8"),
    }
    table = make_table(10, signature=signature)
    with pytest.raises(TypeError, match="float8_e5m2: DLPack has no such type"):
        table._native.column(1)
    for index in (2, 3):
        with pytest.raises(TypeError, match=f"column {index} does not lie plain"):
            table._native.column(index)
    with pytest.raises(IndexError, match="no column of that number"):
        table._native.column(4)
    exported: Any = table._native.column(0)
    assert exported.__dlpack_device__() == (1, 0)


def test_a_column_outlives_its_client_and_server() -> None:
    table = sr.Table("replay", {"x": np.zeros(1000, np.float64)}, 4, max_streams=2, max_sessions=4)
    with sr.Server(tables=[table]) as server, server.client() as client:
        handle = client.table("replay")
        handle.insert({"x": np.arange(1000.0)})
        rows = column(handle, 0)
    del handle
    gc.collect()
    assert (rows == np.arange(1000.0)).all(axis=-1).sum() == 1
