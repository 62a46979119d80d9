"""What these tests have: tables on one embedded server a module, and an interrupt that a thread can send."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tables import make_table, server

__all__ = ["make_table", "server"]


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises KeyboardInterrupt, as Ctrl-C does."""

    def handler(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)
