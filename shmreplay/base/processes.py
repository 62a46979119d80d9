"""Names of other processes, as the kernel has them, and as text that is fit for a terminal and a log."""

from __future__ import annotations


def process_name(pid: int, start_time: int = 0) -> str:
    """The command of a process, at most 15 bytes; empty where it is hidden or has ended.

    Args:
        pid: of it.
        start_time: clock ticks since boot, which tell it from a later process of that pid; 0: unknown.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            before, _, fields = file.read().rpartition(")")  # the command may hold brackets itself
    except OSError:
        return ""
    # Behind the command the state is the 1st field, the start time the 20th.
    return before.partition("(")[2] if start_time in (0, int(fields.split()[19])) else ""


def describe_process(pid: int, name: str) -> str:
    """`process 12 ('actor')`, or without a name where it is hidden; what would move a cursor is escaped in it."""
    return f"process {pid} ({name!r})" if name else f"process {pid}"
