"""Watches the parent of an embedded daemon, by a pidfd.

PDEATHSIG would fire when the *thread* that started the daemon ends. A pipe would stay open in processes that the parent
forked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from shmreplay.base.processes import open_process


def watch_parent(parent_pid: int, on_end: Callable[[], None]) -> bool:
    """Calls `on_end` on the event loop when the parent ends. Returns False if it has ended already."""
    try:
        pidfd = open_process(parent_pid, 0)
    except ProcessLookupError:
        return False
    if os.getppid() != parent_pid:  # the parent died, and another process got its pid
        os.close(pidfd)
        return False
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        on_end()

    loop.add_reader(pidfd, ended)
    return True
