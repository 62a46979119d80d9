"""PageLock: the pieces in which memory is registered, refusals of the driver, and that nothing stays registered."""

import logging
import math
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shmreplay.clients.cuda import page_lock
from shmreplay.clients.cuda.device import Attribute, Device
from shmreplay.clients.cuda.errors import CudaError, Result
from shmreplay.clients.cuda.page_lock import PageLock
from tests.support.children import Child, Work
from tests.support.fake_cuda import FakeCuda
from tests.support.waiting import eventually

PAGE = mmap.PAGESIZE
CHUNK = 3 * 128  # three of four chunks end in the middle of a page
STEP = math.lcm(CHUNK, PAGE)
NUM_CHUNKS = 20 * STEP // CHUNK


class Memory:
    """Shared memory of pages, as segments are made of."""

    def __init__(self, num_bytes: int, prot: int = mmap.PROT_READ | mmap.PROT_WRITE) -> None:
        self._map = mmap.mmap(-1, num_bytes, prot=prot)
        self.array = np.frombuffer(self._map, np.uint8)
        self.address = self.array.ctypes.data
        self.num_bytes = num_bytes


@pytest.fixture
def memory() -> Memory:
    return Memory(NUM_CHUNKS * CHUNK)


@pytest.fixture
def lock(device: Device, memory: Memory) -> Iterator[Callable[..., PageLock]]:
    """Makes locks of the memory; they are closed when the test is over."""
    made: list[PageLock] = []

    def make(num_bytes: int | None = None, chunk_bytes: int = CHUNK, **options: Any) -> PageLock:
        num_bytes = memory.num_bytes if num_bytes is None else num_bytes
        made.append(PageLock(device, memory.address, num_bytes, chunk_bytes, "arena 'a'", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., PageLock]


def settled(lock: PageLock) -> PageLock:
    assert lock.wait(100)
    return lock


def pieces(cuda: FakeCuda, memory: Memory) -> list[tuple[int, int]]:
    """First and last byte of each registered piece."""
    return [(address - memory.address, address - memory.address + size) for address, size in cuda.registered]


def answers(cuda: FakeCuda, call: str) -> list[int]:
    """The results of the calls of a function since the last query."""
    return [code for name, code in cuda.log() if name == call]


# --- pieces ----------------------------------------------------------------------------------------------------------


def test_all_of_it_is_registered_where_it_lies(cuda: FakeCuda, memory: Memory, lock: Make) -> None:
    found = settled(lock())
    assert (found.state, found.reason, found.progress) == ("registered", "", 1.0)
    assert pieces(cuda, memory) == [(0, memory.num_bytes)]
    found.close()
    assert (found.state, found.progress) == ("closed", 0.0)
    assert cuda.registered == []


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_pieces_are_as_large_as_they_may_be_and_end_with_a_page_and_a_chunk(
    cuda: FakeCuda, memory: Memory, lock: Make, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(page_lock, "MAX_PIECE_BYTES", steps * STEP + STEP // 2)
    assert settled(lock()).state == "registered"
    found = pieces(cuda, memory)
    assert [first for first, _ in found] == [0, *(last for _, last in found[:-1])]
    assert found[-1][1] == memory.num_bytes
    assert {last - first for first, last in found[:-1]} == {steps * STEP}
    assert all(last % PAGE == 0 and last % CHUNK == 0 for _, last in found)


def test_the_last_piece_ends_with_the_page_of_the_last_byte(cuda: FakeCuda, memory: Memory, lock: Make) -> None:
    assert settled(lock(5 * CHUNK)).state == "registered"
    assert pieces(cuda, memory) == [(0, -(-5 * CHUNK // PAGE) * PAGE)]


def test_a_chunk_larger_than_a_piece_may_be_is_not_cut(
    cuda: FakeCuda, memory: Memory, lock: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_lock, "MAX_PIECE_BYTES", PAGE)
    assert settled(lock(chunk_bytes=5 * PAGE)).state == "registered"
    assert {last - first for first, last in pieces(cuda, memory)[:-1]} == {5 * PAGE}


def test_a_copy_within_a_chunk_is_within_a_piece(
    cuda: FakeCuda, device: Device, memory: Memory, lock: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_lock, "MAX_PIECE_BYTES", STEP)
    settled(lock())
    memory.array[:] = np.arange(memory.num_bytes) // CHUNK % 251
    to = np.zeros(memory.num_bytes, np.uint8)
    for chunk in range(NUM_CHUNKS):
        first = chunk * CHUNK
        device.copy_to_device_async(to.ctypes.data + first, memory.address + first, CHUNK, 0)
    np.testing.assert_array_equal(to, memory.array)
    assert cuda.copied("registered") == memory.num_bytes


def test_the_driver_is_left_alone_between_pieces_for_as_long_as_one_took(
    memory: Memory, lock: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = [], []
    register = Device.register

    def slowly(device: Device, address: int, num_bytes: int) -> None:
        begun.append(time.monotonic())
        threading.Event().wait(0.01)
        register(device, address, num_bytes)
        ended.append(time.monotonic())

    monkeypatch.setattr(Device, "register", slowly)
    monkeypatch.setattr(page_lock, "MAX_PIECE_BYTES", 5 * STEP)
    assert settled(lock()).state == "registered"
    assert len(begun) == 4
    assert all(after - before >= 0.01 for before, after in zip(ended, begun[1:], strict=False))


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_piece_that_is_refused_is_halved_and_those_after_it_are_as_small(
    cuda: FakeCuda, memory: Memory, lock: Make
) -> None:
    cuda.limit_registrations(3 * STEP)
    assert settled(lock()).state == "registered"
    assert {last - first for first, last in pieces(cuda, memory)} == {2 * STEP}
    refused = [code for code in answers(cuda, "cuMemHostRegister_v2") if code]
    assert refused == [2] * 3  # 20, 10 and 5 steps


def test_a_refusal_half_way_leaves_what_is_registered_and_goes_on_in_halves(
    cuda: FakeCuda, memory: Memory, lock: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_lock, "MAX_PIECE_BYTES", 8 * STEP)
    cuda.refuse("cuMemHostRegister_v2", 1, nth=2)
    assert settled(lock()).state == "registered"
    assert [(last - first) // STEP for first, last in pieces(cuda, memory)] == [8, 4, 4, 4]


def test_when_the_smallest_piece_is_refused_all_is_undone_in_reverse_and_said_once(
    cuda: FakeCuda, memory: Memory, lock: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone: list[int] = []
    unregister = Device.unregister

    def noted(device: Device, address: int) -> None:
        undone.append((address - memory.address) // STEP)
        unregister(device, address)

    monkeypatch.setattr(Device, "unregister", noted)
    cuda.limit_registrations(4 * STEP, in_all=9 * STEP)
    with caplog.at_level(logging.WARNING):
        found = settled(lock())
    assert (found.state, found.progress) == ("refused", 0.0)
    assert undone == [8, 6, 4, 2, 0]
    assert cuda.registered == []
    reason = "cuMemHostRegister failed with CUDA_ERROR_OUT_OF_MEMORY (2), for 12.0 KiB after 108.0 KiB of 240.0 KiB"
    assert found.reason == reason
    assert caplog.messages == [
        f"arena 'a': its memory cannot be page-locked for GPU 0, which takes batches by another way: {reason}"
    ]


@pytest.mark.parametrize("code", [Result.NOT_SUPPORTED, Result.HOST_MEMORY_ALREADY_REGISTERED])
def test_what_smaller_pieces_can_not_change_is_tried_once(cuda: FakeCuda, lock: Make, code: Result) -> None:
    cuda.refuse("cuMemHostRegister_v2", code)
    assert settled(lock()).state == "refused"
    assert answers(cuda, "cuMemHostRegister_v2") == [code]


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        (Attribute.HOST_REGISTER_SUPPORTED, "the GPU or its driver does not do that"),
        (
            Attribute.CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
            "the GPU would see it at another address, piece by piece (as under WSL)",
        ),
    ],
)
def test_a_gpu_that_can_not_is_not_asked(cuda: FakeCuda, lock: Make, attribute: Attribute, reason: str) -> None:
    cuda.set_attribute(attribute, 0)
    found = settled(lock())
    assert (found.state, found.reason) == ("refused", reason)
    assert cuda.calls("cuMemHostRegister_v2") == 0


def test_a_driver_that_does_not_say_what_the_gpu_can_do_is_a_refusal(cuda: FakeCuda, lock: Make) -> None:
    cuda.refuse("cuDeviceGetAttribute", 3)
    found = settled(lock())
    assert found.state == "refused"
    assert found.reason == (
        "the driver does not say what the GPU can do: cuDeviceGetAttribute failed with CUDA_ERROR_NOT_INITIALIZED (3)"
    )


def test_memory_for_reading_only_is_refused_and_the_driver_works_on(cuda: FakeCuda, device: Device) -> None:
    memory = Memory(4 * PAGE, prot=mmap.PROT_READ)
    with PageLock(device, memory.address, memory.num_bytes, PAGE, "arena 'a'") as found:
        assert settled(found).state == "refused"
        assert found.reason.startswith("cuMemHostRegister failed with CUDA_ERROR_INVALID_VALUE (1), for 4.0 KiB after ")
        device.free(device.alloc(1))
        with PageLock(device, (other := Memory(PAGE)).address, PAGE, PAGE, "arena 'b'") as second:
            assert settled(second).state == "registered"
        del other


def test_a_piece_that_the_driver_keeps_is_told_and_the_others_go(
    cuda: FakeCuda, device: Device, memory: Memory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_lock, "MAX_PIECE_BYTES", 10 * STEP)
    found = settled(PageLock(device, memory.address, memory.num_bytes, CHUNK, "arena 'a'"))
    cuda.refuse("cuMemHostUnregister", 1, nth=1)
    with caplog.at_level(logging.WARNING):
        found.close()
    second = memory.address + 10 * STEP
    assert caplog.messages == [
        f"arena 'a': 120.0 KiB at {second:#x} stay page-locked: cuMemHostUnregister failed with "
        "CUDA_ERROR_INVALID_VALUE (1)"
    ]
    assert cuda.registered == [(second, 10 * STEP)]
    device.unregister(second)


def test_memory_that_can_not_be_locked_by_pages_is_an_error_at_once(device: Device) -> None:
    with pytest.raises(ValueError, match=r"^arena 'a': 10 bytes in chunks of 5 at 0x1001 cannot be page-locked; exp"):
        PageLock(device, PAGE + 1, 10, 5, "arena 'a'")
    with pytest.raises(ValueError, match=r"^arena 'a': 0 bytes in chunks of 5 at 0x1000 cannot"):
        PageLock(device, PAGE, 0, 5, "arena 'a'")


def test_a_gpu_that_gives_no_handle_begins_no_lock(cuda: FakeCuda, device: Device, memory: Memory) -> None:
    cuda.refuse("cuDevicePrimaryCtxRetain", 2)
    with pytest.raises(CudaError, match=r"^cuDevicePrimaryCtxRetain failed"):
        PageLock(device, memory.address, memory.num_bytes, CHUNK, "arena 'a'")


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_lock_that_is_closed_while_it_registers_leaves_nothing(
    cuda: FakeCuda, memory: Memory, lock: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    register = Device.register

    def when_told(device: Device, address: int, num_bytes: int) -> None:
        register(device, address, num_bytes)
        goes_on.wait(100)

    monkeypatch.setattr(Device, "register", when_told)
    monkeypatch.setattr(page_lock, "MAX_PIECE_BYTES", STEP)
    found = lock()
    eventually(lambda: len(cuda.registered) == 1)
    assert found.state == "registering"
    assert not found.wait(0)
    found.end()
    assert (found.state, found.is_over) == ("closed", False)
    goes_on.set()
    found.close()
    assert (found.state, found.is_over, cuda.registered) == ("closed", True, [])
    assert cuda.calls("cuMemHostRegister_v2") == 1


def test_what_keeps_the_memory_is_released_after_the_last_piece(
    cuda: FakeCuda, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_lock, "MAX_PIECE_BYTES", 2 * PAGE)
    memory = Memory(10 * PAGE)
    found = PageLock(device, memory.address, memory.num_bytes, PAGE, "arena 'a'", keeps=memory)
    del memory
    assert settled(found).state == "registered"
    assert len(cuda.registered) == 5
    found.close()  # the fake looks whether what is unregistered is still mapped
    assert cuda.registered == []


def test_what_the_driver_does_not_let_go_of_stays_mapped(
    cuda: FakeCuda, device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(page_lock, "_left_to_the_driver", kept)
    memory = Memory(2 * PAGE)
    found = settled(PageLock(device, memory.address, memory.num_bytes, PAGE, "arena 'a'", keeps=memory))
    cuda.refuse("cuMemHostUnregister", 999, nth=1)
    found.close()
    assert kept == [memory]
    assert "8.0 KiB at" in caplog.text
    device.unregister(memory.address)  # for the fake, which counts what is left


def test_a_lock_waits_for_the_one_before_it(cuda: FakeCuda, memory: Memory, lock: Make) -> None:
    first = settled(lock())
    first.end()
    second = settled(lock(after=first))
    assert (first.is_over, second.state) == (True, "registered")


def test_in_a_forked_child_it_is_closed_and_the_parents_stays(
    cuda: FakeCuda, memory: Memory, lock: Make, fork: Callable[[Work], Child]
) -> None:
    found = settled(lock())

    def work(pipe: object) -> tuple[str, bool]:
        found.close()
        return found.state, found.wait()

    assert fork(work).result() == ("closed", True)
    assert found.state == "registered"
    assert pieces(cuda, memory) == [(0, memory.num_bytes)]
