"""Events: when they are done, and waits for them that end."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.errors import CudaError, CudaUnavailable
from shmreplay.clients.cuda.event import Event
from tests.support.fake_cuda import FakeCuda


@pytest.fixture
def event(device: Device) -> Iterator[Event]:
    found = Event(device)
    yield found
    found.destroy()


def test_an_event_is_done_until_it_is_recorded_and_again_when_its_stream_has_come_by(
    cuda: FakeCuda, event: Event
) -> None:
    assert event.is_done()
    assert event.wait(0)
    cuda.delay(None)
    event.record(0)
    assert not event.is_done()
    cuda.run()
    assert event.is_done()


def test_it_is_done_after_its_last_record(cuda: FakeCuda, event: Event) -> None:
    cuda.delay(None)
    event.record(0)
    event.record(0)
    cuda.run(1)
    assert not event.is_done()
    cuda.run(1)
    assert event.is_done()


def test_a_wait_ends_with_its_time_or_with_the_work(cuda: FakeCuda, event: Event) -> None:
    cuda.delay(None)
    event.record(0)
    assert not event.wait(0)
    assert not event.wait(0.01)
    timer = threading.Timer(0.02, cuda.run)
    timer.start()
    assert event.wait()
    timer.join()


def test_work_that_takes_a_while_is_waited_for(cuda: FakeCuda, event: Event) -> None:
    cuda.delay(0.01)
    event.record(0)
    assert event.wait(100)


def test_ctrl_c_ends_a_wait(cuda: FakeCuda, event: Event) -> None:
    cuda.delay(None)
    event.record(0)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))

    def wait() -> None:
        timer.start()
        event.wait(100)

    with pytest.raises(KeyboardInterrupt):
        wait()
    timer.join()


def test_a_failure_of_the_work_before_it_is_raised(cuda: FakeCuda, event: Event) -> None:
    cuda.refuse("cuEventQuery", 700)
    with pytest.raises(CudaError, match=r"^cuEventQuery failed with an unknown error \(700\)$"):
        event.wait()


def test_a_stream_waits_for_an_event_of_another_one(cuda: FakeCuda, device: Device, event: Event) -> None:
    stream, behind = device.stream_create(), Event(device)
    cuda.delay(None)
    event.record(0)
    event.hold_up(stream)
    behind.record(stream)
    assert ("cuStreamWaitEvent", 0) in cuda.log()
    cuda.run(1)
    assert (event.is_done(), behind.is_done()) == (True, False)
    cuda.run()
    assert behind.is_done()
    behind.destroy()
    device.stream_destroy(stream)


def test_a_destroyed_event_says_so(device: Device) -> None:
    event = Event(device)
    event.destroy()
    event.destroy()
    with pytest.raises(CudaUnavailable, match="this event is destroyed; make another one"):
        event.is_done()
    with pytest.raises(CudaUnavailable, match="this event is destroyed"):
        event.hold_up(0)
