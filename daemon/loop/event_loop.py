"""The daemon's event loop, whose selector outlives a removal that the kernel refused."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


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


class LoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes loops with that selector."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A new loop."""
        return asyncio.SelectorEventLoop(LastingSelector())
