"""The end of an embedded daemon's parent, by pidfd.

PDEATHSIG would fire when the *thread* that started us ends, and a pipe stays open in the parent's forked actors.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


def watch_parent(parent_pid: int, on_end: Callable[[], None]) -> bool:
    """Calls `on_end` on the running loop once the parent has ended, however it ends. False if it has ended already."""
    try:
        pidfd = os.pidfd_open(parent_pid)
    except ProcessLookupError:
        return False
    if os.getppid() != parent_pid:  # it died and the pid went to somebody else; as long as it lives, we are its child
        os.close(pidfd)
        return False
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        on_end()

    loop.add_reader(pidfd, ended)
    return True
