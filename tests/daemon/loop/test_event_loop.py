"""The selector of the daemon's loop, after the kernel refused to remove a descriptor."""

import asyncio
import os
import selectors
import sys
import warnings
from typing import Any

import pytest

from shmreplay.daemon.loop.event_loop import LastingSelector, _run_by_policy, new_event_loop, run


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


async def selector_of_the_loop() -> object:
    return asyncio.get_running_loop()._selector  # type: ignore[attr-defined]


def test_loops_have_it() -> None:
    loop = new_event_loop()
    assert isinstance(loop._selector, LastingSelector)  # type: ignore[attr-defined]
    loop.close()


def test_a_coroutine_runs_on_such_a_loop_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(run(selector_of_the_loop()), LastingSelector)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="policies are deprecated, and not used here")
def test_a_python_without_runners_has_it_by_a_policy() -> None:
    try:
        assert isinstance(_run_by_policy(selector_of_the_loop()), LastingSelector)
    finally:
        asyncio.set_event_loop_policy(None)
