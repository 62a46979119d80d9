"""Page-locked arenas: rows go directly to the GPU, undamaged, as long as their lease outlasts their copy."""

import gc
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.event import Event
from shmreplay.clients.cuda.page_locks import hold_pages
from shmreplay.clients.samplers.view import View, ViewedItem
from tests.support.fake_cuda import FakeCuda
from tests.support.tables import COLUMNS, TableMaker, by_path, columns_of, step, steps

NAMES = ("n", "x", "image")


@pytest.fixture
def table(cuda: FakeCuda, device: Device, make_table: TableMaker) -> Iterator[sr.TableHandle]:
    """One with room for 16 items, page-locked."""
    made = make_table(16, seed=1)
    with hold_pages(device, made._arena) as hold:
        assert hold.wait(100)
        assert hold.state == "registered"
        yield made


class Rows:
    """What arrived of some items, under the names of their columns: `[items, *shape]` each."""

    def __init__(self, num_items: int) -> None:
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros((num_items, *columns_of(0)[name].shape), columns_of(0)[name].dtype) for name in NAMES
        }

    def copy(self, device: Device, index: int, item: ViewedItem) -> None:
        """Has the GPU copy the item's columns directly from the segment."""
        data = by_path(item.data)
        for name, to in self.columns.items():
            device.copy_to_device_async(to[index:].ctypes.data, data[name].ctypes.data, data[name].nbytes, 0)

    def check(self) -> None:
        """Fails unless all columns of a row are of one step."""
        expected = columns_of(self.columns["n"])
        for name, found in self.columns.items():
            np.testing.assert_array_equal(found, expected[name])


def test_rows_that_actors_write_after_it_was_locked_are_copied_from_the_segment_itself(
    cuda: FakeCuda, device: Device, table: sr.TableHandle
) -> None:
    for n in (3, 4):
        table.insert(step(n))
        with table.view(8) as items:
            rows = Rows(8)
            for i, item in enumerate(items):
                assert all(by_path(item.is_view).values())
                rows.copy(device, i, item)
        rows.check()
    assert set(rows.columns["n"]) == {3, 4}
    assert cuda.copied("registered") > 0
    assert (cuda.copied("pinned"), cuda.copied("pageable")) == (0, 0)


def test_a_copy_reads_when_it_is_done_so_a_lease_that_ends_before_shows_other_steps(
    cuda: FakeCuda, device: Device, table: sr.TableHandle
) -> None:
    table.insert(step(1))
    cuda.delay(None)
    rows = Rows(1)
    with table.view(1) as items:
        rows.copy(device, 0, items[0])
    for n in range(2, 200):  # more than there are chunks: the row's place is written again
        table.insert(step(n))
    cuda.run()
    assert rows.columns["n"][0] != 1


def test_a_dropped_arena_stays_mapped_until_nothing_of_it_is_registered(
    cuda: FakeCuda, device: Device, server: sr.Server
) -> None:
    client = server.client()
    client.create_tables([sr.Table("locked", COLUMNS, 16, max_streams=8, max_sessions=8)])
    table = client.table("locked")
    address, hold = table._arena.data_address, hold_pages(device, table._arena)
    assert hold.wait(100)
    client.drop_table("locked")
    client.close()
    del client, table
    gc.collect()
    assert is_mapped(address)
    hold.close()  # the fake looks whether what is unregistered is still mapped
    assert not is_mapped(address)


def is_mapped(address: int) -> bool:
    """Whether a segment begins there."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return any(line.startswith(f"{address:x}-") and "shmreplay." in line for line in maps)


@pytest.mark.parametrize("delay_s", [0.0, 2e-4, 1e-3])
def test_rows_that_are_leased_until_their_event_is_done_are_never_torn(
    cuda: FakeCuda, device: Device, table: sr.TableHandle, make_table: TableMaker, delay_s: float
) -> None:
    table.insert_batch(steps(np.arange(16)))
    over = threading.Event()

    def write() -> None:
        own, n = make_table.client.table(table.name), 16
        while not over.is_set():
            own.insert_batch(steps(np.arange(n, n + 4)))
            n += 4

    writer = threading.Thread(target=write)
    writer.start()
    cuda.delay(delay_s)
    flying = deque[tuple[View, Rows, Event]]()
    newest = 0
    try:
        for _ in range(150):
            items, rows, event = table.view(8), Rows(8), Event(device)
            for i, item in enumerate(items):
                rows.copy(device, i, item)
            event.record(0)
            flying.append((items, rows, event))
            if len(flying) == 2:
                newest = max(newest, _land(*flying.popleft()))
        while flying:
            newest = max(newest, _land(*flying.popleft()))
    finally:
        over.set()
        writer.join()
    assert newest > 32, "the writer never came round: nothing was tried"


def _land(items: View, rows: Rows, event: Event) -> int:
    """Gives the lease back once the rows have arrived, and looks at them; the newest step among them."""
    assert event.wait(100)
    items.release()
    event.destroy()
    rows.check()
    return int(rows.columns["n"].max())
