"""hold_pages: readers of a segment on a GPU share one lock. The last one undoes it before the segment is unmapped."""

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from shmreplay.clients.cuda import page_locks
from shmreplay.clients.cuda.device import Device, open_device
from shmreplay.clients.cuda.errors import CudaError
from shmreplay.clients.cuda.page_locks import PageHold, hold_pages
from tests.clients.cuda.test_page_lock import PAGE, Memory
from tests.support.children import Child, Work
from tests.support.fake_cuda import FakeCuda
from tests.support.waiting import eventually


class Segment:
    """What a mapped arena shows of its data segment."""

    name = "replay"

    def __init__(self, num_chunks: int = 4) -> None:
        self._memory = Memory(num_chunks * PAGE)
        self._num_chunks = num_chunks

    @property
    def data_address(self) -> int:
        return self._memory.address

    def stats(self) -> dict[str, Any]:
        return {"num_chunks": self._num_chunks, "chunk_bytes": PAGE}


@pytest.fixture
def segment() -> Segment:
    return Segment()


def registered(hold: PageHold) -> PageHold:
    assert hold.wait(100)
    assert (hold.state, hold.reason, hold.progress) == ("registered", "", 1.0)
    return hold


@pytest.mark.long
def test_it_is_registered_once_for_all_holders_until_the_last_one_lets_go(
    cuda: FakeCuda, device: Device, segment: Segment
) -> None:
    with registered(hold_pages(device, segment)) as first:
        with device.again() as other, registered(hold_pages(other, segment)) as second:
            assert cuda.registered == [(segment.data_address, 4 * PAGE)]
            first.close()
            first.close()
            assert second.state == "registered"
        assert (second.state, second.progress) == ("closed", 0.0)
    assert cuda.left == {"contexts": 1}
    assert cuda.calls("cuMemHostRegister_v2") == 1


def test_each_gpu_has_a_lock_of_its_own(cuda: FakeCuda, device: Device) -> None:
    cuda.set_devices(2)
    segments = Segment(), Segment()
    with open_device(1) as other:
        holds = [registered(hold_pages(one, place)) for one, place in zip((device, other), segments, strict=True)]
        assert len(cuda.registered) == 2
        for hold in holds:
            hold.close()


def test_a_segment_held_again_at_once_is_registered_again(cuda: FakeCuda, device: Device, segment: Segment) -> None:
    for _ in range(20):
        hold_pages(device, segment)  # garbage at once: it ends by itself
    with registered(hold_pages(device, segment)):
        assert len(cuda.registered) == 1


def test_a_hold_of_a_lock_that_was_ended_under_its_holders_begins_another_one(
    cuda: FakeCuda, device: Device, segment: Segment
) -> None:
    with registered(hold_pages(device, segment)) as first:
        first._lock.close()  # as Python's end does
        assert (first.state, cuda.registered) == ("closed", [])
        with registered(hold_pages(device, segment)) as second:
            first.close()
            assert second.state == "registered"


def test_a_hold_that_is_garbage_is_let_go(cuda: FakeCuda, device: Device, segment: Segment) -> None:
    hold = registered(hold_pages(device, segment))
    del hold
    gc.collect()
    eventually(lambda: cuda.left == {"contexts": 1})


def test_the_segment_stays_mapped_until_nothing_of_it_is_registered(cuda: FakeCuda, device: Device) -> None:
    segment = Segment()
    mapped = weakref.ref(segment)
    hold = registered(hold_pages(device, segment))
    del segment
    gc.collect()
    assert mapped() is not None
    hold.close()  # the fake looks whether what is unregistered is still mapped
    gc.collect()
    assert mapped() is None


def test_a_refusal_is_the_same_for_all_holders(cuda: FakeCuda, device: Device, segment: Segment) -> None:
    cuda.refuse("cuMemHostRegister_v2", 801)
    holds = [hold_pages(device, segment) for _ in range(2)]
    for hold in holds:
        assert hold.wait(100)
        assert (hold.state, hold.progress) == ("refused", 0.0)
        assert hold.reason.startswith("cuMemHostRegister failed with CUDA_ERROR_NOT_SUPPORTED (801), for 16.0 KiB")
    assert cuda.calls("cuMemHostRegister_v2") == 1
    for hold in holds:
        hold.close()


def test_threads_that_hold_and_let_go_side_by_side_never_register_it_twice(
    cuda: FakeCuda, device: Device, segment: Segment
) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(40):
                with registered(hold_pages(device, segment)):
                    assert cuda.registered == [(segment.data_address, 4 * PAGE)]
        except BaseException as error:  # noqa: BLE001  # the test fails with it
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert cuda.left == {"contexts": 1}


def test_a_lock_that_can_not_begin_is_no_hold_and_the_next_one_may(
    cuda: FakeCuda, device: Device, segment: Segment
) -> None:
    cuda.refuse("cuDevicePrimaryCtxRetain", 2, nth=1)
    with pytest.raises(CudaError):
        hold_pages(device, segment)
    registered(hold_pages(device, segment)).close()


@pytest.mark.long
def test_a_thousand_holds_of_new_segments_leave_nothing(cuda: FakeCuda, device: Device) -> None:
    for _ in range(1000):
        with registered(hold_pages(device, Segment(1))):
            pass
    assert cuda.left == {"contexts": 1}
    assert len(page_locks._locks.by_place) <= 2, "those that are over are forgotten"


def test_a_forked_child_has_nothing_locked_and_closes_nothing(
    cuda: FakeCuda, device: Device, segment: Segment, fork: Callable[[Work], Child]
) -> None:
    hold = registered(hold_pages(device, segment))

    def work(pipe: object) -> str:
        hold.close()
        return hold.state

    assert fork(work).result() == "closed"
    assert registered(hold).progress == 1.0
    hold.close()


def test_a_child_forked_while_another_thread_is_at_the_locks_is_not_held_up(
    cuda: FakeCuda, device: Device, segment: Segment, fork: Callable[[Work], Child]
) -> None:
    hold = registered(hold_pages(device, segment))
    is_in, may_go = threading.Event(), threading.Event()

    def stay() -> None:
        with page_locks._locks.guard:
            is_in.set()
            may_go.wait(100)

    thread = threading.Thread(target=stay)
    thread.start()
    assert is_in.wait(100)
    child = fork(lambda pipe: hold.close())
    child.result()
    may_go.set()
    thread.join()
    hold.close()
