"""Page-locked arenas: rows go to the GPU from where they lie, whole, as long as their lease outlives their copy."""

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
from shmreplay.clients.view import View, ViewedItem
from tests.cuda.fake_cuda import FakeCuda
from tests.tables import TableMaker, by_path, columns_of, step, steps

NAMES = ("n", "x", "image")


class Arena:
    """A mapped arena, as `hold_pages` takes it."""

    def __init__(self, table: sr.TableHandle) -> None:
        self._arena = table._arena
        self.name = table._arena.name
        self.data_address = next(_mapped(f".{self.name}.data"))

    def stats(self) -> dict[str, Any]:
        return self._arena.stats()


def _mapped(ending: str) -> Iterator[int]:
    """Where files whose names end so are mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if line.split("(")[0].strip().endswith(ending):
                yield int(line.split("-")[0], 16)


@pytest.fixture
def table(cuda: FakeCuda, device: Device, make_table: TableMaker) -> Iterator[sr.TableHandle]:
    """One with room for 16 items, page-locked."""
    made = make_table(16, seed=1)
    with hold_pages(device, Arena(made)) as hold:
        assert hold.wait(30)
        assert hold.state == "registered"
        yield made


class Rows:
    """What arrived of some items, under the names of their columns: `[items, *shape]` each."""

    def __init__(self, num_items: int) -> None:
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros((num_items, *columns_of(0)[name].shape), columns_of(0)[name].dtype) for name in NAMES
        }

    def copy(self, device: Device, index: int, item: ViewedItem) -> None:
        """Has the item's columns copied from where they lie."""
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
            items, rows, event = table.view(8), Rows(8), device.event_create()
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
    assert event.wait(30)
    items.release()
    event.destroy()
    rows.check()
    return int(rows.columns["n"].max())
