"""Rings of pinned buffers: a buffer is not reused until its copy is done, and none is left behind."""

import ctypes
import gc
import logging
from collections.abc import Callable

import numpy as np
import pytest

from shmreplay.clients.cuda import pinned
from shmreplay.clients.cuda.device import Device, open_device
from shmreplay.clients.cuda.errors import CudaError
from shmreplay.clients.cuda.pinned import PinnedRing, PinnedSlot
from shmreplay.errors import ShmReplayError
from tests.support.children import Child, Work
from tests.support.fake_cuda import FakeCuda

PAGE = 4096


def taken(ring: PinnedRing) -> PinnedSlot:
    slot = ring.take(30)
    assert slot is not None
    return slot


def test_buffers_are_whole_pages_side_by_side_and_page_locked(cuda: FakeCuda, device: Device) -> None:
    to = device.alloc(PAGE)
    with PinnedRing(device, 3, PAGE + 1) as ring:
        assert (len(ring), ring.slot_bytes) == (3, 2 * PAGE)
        slots = [taken(ring) for _ in range(3)]
        assert [slot.address for slot in slots] == [slots[0].address + i * 2 * PAGE for i in range(3)]
        for slot in slots:
            assert slot.address % PAGE == 0
            assert slot.address == slot.array.ctypes.data
            assert (slot.array.dtype.name, slot.array.shape) == ("uint8", (2 * PAGE,))
            assert slot.array.flags.writeable
            device.copy_to_device_async(to, slot.address, PAGE, 0)
        assert taken(ring).address == slots[0].address
        assert cuda.copied("pinned") == 3 * PAGE
        del slot, slots
    device.free(to)


def test_a_buffer_is_not_given_again_before_its_copy_is_done(cuda: FakeCuda, device: Device) -> None:
    to, stream = device.alloc(PAGE), device.stream_create()
    cuda.delay(None)
    with PinnedRing(device, 1, PAGE) as ring:
        slot = taken(ring)
        slot.array[:] = 7
        device.copy_to_device_async(to, slot.address, PAGE, stream)
        slot.sent(stream)
        assert ring.take(0) is None
        cuda.run(1)
        assert ring.take(0) is None, "the copy is done, but the stream has not come by the event"
        cuda.run(1)
        assert taken(ring).address == slot.address
        assert ctypes.string_at(to, PAGE) == bytes([7]) * PAGE
        del slot
    device.free(to)
    device.stream_destroy(stream)


def test_what_arrives_is_what_was_put_in_however_late_copies_are(cuda: FakeCuda, device: Device, seed: int) -> None:
    rng = np.random.default_rng(seed)
    places, stream = [device.alloc(PAGE) for _ in range(200)], device.stream_create()
    with PinnedRing(device, 3, PAGE) as ring:
        for i, to in enumerate(places):
            cuda.delay(rng.choice([0, 2e-4, 2e-3]))
            slot = taken(ring)
            slot.array[:] = i
            device.copy_to_device_async(to, slot.address, PAGE, stream)
            slot.sent(stream)
        del slot
        cuda.run()
        assert [ctypes.string_at(to, PAGE) for to in places] == [bytes([i]) * PAGE for i in range(len(places))]
    for to in places:
        device.free(to)
    device.stream_destroy(stream)


def test_a_ring_that_is_closed_waits_for_its_copies(cuda: FakeCuda, device: Device) -> None:
    to = device.alloc(PAGE)
    cuda.delay(0.02)
    with PinnedRing(device, 2, PAGE) as ring:
        slot = taken(ring)
        device.copy_to_device_async(to, slot.address, PAGE, 0)
        slot.sent(0)
        del slot
    assert cuda.pending == 0
    assert cuda.left.get("pinned") is None
    with pytest.raises(ShmReplayError, match="this ring of pinned buffers is closed; make another one"):
        ring.take()
    device.free(to)


def test_buffers_of_a_gpu_that_hangs_are_left_to_it(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pinned, "LAST_COPIES_S", 0.01)
    cuda.delay(None)
    with open_device() as device, PinnedRing(device, 1, PAGE) as ring, caplog.at_level(logging.WARNING):
        taken(ring).sent(0)
    assert caplog.messages == ["GPU 0 still copies after 0.01 s; the pinned buffers are left to it"]
    assert cuda.left["pinned"] == 1
    cuda.reset()  # it never comes back


def test_arrays_outlive_their_ring(cuda: FakeCuda, device: Device) -> None:
    ring = PinnedRing(device, 1, PAGE)
    array = taken(ring).array[10:20]
    array[:] = 9
    ring.close()
    ring.close()
    assert array.tolist() == [9] * 10
    assert cuda.left["pinned"] == 1
    del array
    assert cuda.left == {"contexts": 1}


def test_a_ring_outlives_the_handle_that_it_was_made_with(cuda: FakeCuda, device: Device) -> None:
    other = device.again()
    ring = PinnedRing(other, 1, PAGE)
    other.close()
    taken(ring).sent(0)
    ring.close()
    assert cuda.left == {"contexts": 1}


def test_a_ring_that_is_garbage_gives_its_memory_back(cuda: FakeCuda, device: Device) -> None:
    taken(PinnedRing(device, 2, PAGE))
    gc.collect()
    assert cuda.left == {"contexts": 1}


@pytest.mark.parametrize("call", ["cuDevicePrimaryCtxRetain", "cuMemHostAlloc", "cuEventCreate"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_ring_that_the_driver_refuses_leaves_nothing(cuda: FakeCuda, device: Device, call: str, nth: int) -> None:
    cuda.refuse(call, 2, nth)
    for _ in range(nth - 1 if call != "cuEventCreate" else 0):
        PinnedRing(device, 2, PAGE).close()
    with pytest.raises(CudaError, match=rf"^{call} failed with CUDA_ERROR_OUT_OF_MEMORY"):
        PinnedRing(device, 2, PAGE)
    gc.collect()
    assert cuda.left == {"contexts": 1}


def test_a_driver_that_does_not_take_buffers_back_is_quoted(cuda: FakeCuda, caplog: pytest.LogCaptureFixture) -> None:
    cuda.refuse("cuMemFreeHost", 1)
    with open_device() as device, caplog.at_level(logging.WARNING):
        PinnedRing(device, 1, PAGE).close()
    assert caplog.messages == [
        "GPU 0 does not take its pinned buffers back: cuMemFreeHost failed with CUDA_ERROR_INVALID_VALUE (1)"
    ]
    cuda.reset()  # what is left is the driver's


def test_numbers_that_make_no_ring_are_refused(device: Device) -> None:
    with pytest.raises(ValueError, match=r"^a ring of pinned buffers: num_slots is 0; expected at least 1$"):
        PinnedRing(device, 0, PAGE)
    with pytest.raises(ValueError, match=r"^a ring of pinned buffers: slot_bytes is -1; expected at least 1$"):
        PinnedRing(device, 1, -1)


def test_a_thousand_rings_leave_nothing(cuda: FakeCuda, device: Device) -> None:
    for _ in range(1000):
        with PinnedRing(device, 2, PAGE) as ring:
            taken(ring).sent(0)
    assert cuda.left == {"contexts": 1}


def test_a_forked_child_leaves_the_parents_ring_alone(
    cuda: FakeCuda, device: Device, fork: Callable[[Work], Child]
) -> None:
    ring = PinnedRing(device, 1, PAGE)
    fork(lambda pipe: ring.close()).result()
    taken(ring).array[:] = 3
    ring.close()
