"""Names of other processes, as the kernel has them."""

from __future__ import annotations

from shmreplay import _core


def process_name(pid: int, start_time: int = 0) -> str:
    """The command of a process, at most 15 bytes; empty where it is hidden or has ended.

    Args:
        pid: of it.
        start_time: clock ticks since boot, which tell it from a later process of that pid; 0: unknown.
    """
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().removesuffix("\n")
    except OSError:
        return ""
    # Behind the name: what was read is of the process that is looked at now.
    return name if start_time == 0 or _core.process_start_time(pid) in (0, start_time) else ""
