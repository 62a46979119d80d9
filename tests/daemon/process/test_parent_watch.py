"""Watching the parent: a process that is not ours counts as ended."""

import asyncio
import os
import subprocess

from shmreplay.daemon.process.parent_watch import watch_parent


def test_a_parent_that_is_not_ours_counts_as_ended(sleeper: "subprocess.Popen[bytes]") -> None:
    async def main() -> None:
        assert not watch_parent(sleeper.pid, lambda: None)
        assert not watch_parent(2**22 + 1, lambda: None)  # above any pid_max
        assert watch_parent(os.getppid(), lambda: None)

    asyncio.run(main())
