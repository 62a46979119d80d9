"""The selector of the daemon's loop, after the kernel refused to remove a descriptor."""

import os
import selectors
from typing import Any

import pytest

from shmreplay.daemon.loop.event_loop import LastingSelector, LoopPolicy


class Refusing:
    """An epoll whose removals fail."""

    def __init__(self, epoll: object) -> None:
        self._epoll = epoll
        self.num_refused = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._epoll, name)

    def unregister(self, fd: int) -> None:
        self.num_refused += 1
        raise OSError("no memory")


@pytest.mark.parametrize("wrap", [lambda fd: fd, lambda fd: os.fdopen(fd, "rb", closefd=False)])
def test_a_descriptor_that_the_kernel_kept_is_registered_again(wrap: object) -> None:
    selector: Any = LastingSelector()
    ours, theirs = os.pipe()
    file = wrap(ours)  # type: ignore[operator]
    real = selector._selector
    selector.register(file, selectors.EVENT_READ)
    refusing = Refusing(real)
    selector._selector = refusing
    selector.unregister(file)
    selector._selector = real
    assert refusing.num_refused == 1
    selector.register(file, selectors.EVENT_READ, "again")
    os.write(theirs, b"x")
    assert [key.data for key, _ in selector.select(0)] == ["again"]
    selector.close()
    os.close(ours)
    os.close(theirs)


def test_loops_have_it() -> None:
    loop = LoopPolicy().new_event_loop()
    assert isinstance(loop._selector, LastingSelector)  # type: ignore[attr-defined]
    loop.close()
