"""Hears the parent of an embedded daemon ask for the stop, over a socket that only the two have."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


def watch_for_stop(fd: int, on_stop: Callable[[], None]) -> None:
    """Calls `on_stop` on the event loop when a byte arrives.

    An end of the stream means nothing: a parent that closes all its descriptors still uses its tables.
    """
    loop = asyncio.get_running_loop()

    def readable() -> None:
        loop.remove_reader(fd)
        asked = os.read(fd, 1)
        os.close(fd)
        if asked:
            on_stop()

    loop.add_reader(fd, readable)
