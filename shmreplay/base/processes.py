"""Names of other processes, from the kernel, and as safe text for a terminal or a log."""

from __future__ import annotations


def process_name(pid: int, start_time: int = 0) -> str:
    """Returns the command of a process, at most 15 bytes; empty if it is hidden or the process has ended.

    Args:
        pid: of the process.
        start_time: clock ticks since boot, which distinguish it from a later process with that pid; 0: unknown.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            before, _, fields = file.read().rpartition(")")  # the command itself may have brackets
    except OSError:
        return ""
    # After the command, the state is the 1st field, the start time the 20th.
    return before.partition("(")[2] if start_time in (0, int(fields.split()[19])) else ""


def describe_process(pid: int, name: str) -> str:
    """`process 12 ('actor')`, or without a name if it is hidden. Control characters are escaped."""
    return f"process {pid} ({name!r})" if name else f"process {pid}"
