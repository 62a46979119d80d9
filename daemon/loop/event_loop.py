"""The daemon's event loop, whose selector outlives a removal that the kernel refused."""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class LastingSelector(selectors.EpollSelector):
    """An epoll selector that registers a descriptor also if the kernel still has it.

    Python ignores errors when it removes a descriptor. Adding it again would then fail with EEXIST for ever, and the
    daemon would accept no more clients.
    """

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As in the base class."""
        try:
            return super().register(fileobj, events, data)
        except FileExistsError:
            fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
            self._selector.unregister(fd)  # type: ignore[attr-defined]  # the epoll object; typeshed hides it
            return super().register(fileobj, events, data)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop with that selector."""
    return asyncio.SelectorEventLoop(LastingSelector())


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine on a loop with that selector, as `asyncio.run` does."""
    if sys.version_info < (3, 11):  # without a Runner; later Pythons deprecate policies
        return _run_by_policy(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def _run_by_policy(main: Coroutine[Any, Any, Result]) -> Result:
    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return new_event_loop()

    asyncio.set_event_loop_policy(Policy())
    return asyncio.run(main)
