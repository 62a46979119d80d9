"""What these tests have: a driver without a GPU, and no thread left over."""

import gc
import threading
from collections.abc import Iterator

import pytest

from tests.support.fake_cuda import FakeCuda, cuda
from tests.support.waiting import eventually

__all__ = ["cuda"]


@pytest.fixture
def gpu(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Samplers for "cuda:0" go by the fake driver."""
    from shmreplay.clients.torch import choice  # torch may be missing where these fixtures are read
    from tests.clients.torch.host_tensors import HostTensors

    monkeypatch.setattr(choice, "DeviceTensors", HostTensors)
    yield
    if cuda.left:
        gc.collect()  # an error that a test caught has the frames that it came through, with what is in them


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    if not set(threading.enumerate()) <= before:
        gc.collect()
    eventually(lambda: set(threading.enumerate()) <= before)
