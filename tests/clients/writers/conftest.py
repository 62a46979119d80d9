"""What these tests have: an interrupt that a thread can send."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises KeyboardInterrupt, as Ctrl-C does."""

    def handler(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)
