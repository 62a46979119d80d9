"""Names of other processes, from the kernel, and as safe text for a terminal or a log."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass

MAX_NAME = 40  # characters of a script's name that are shown
_MAX_ARGUMENTS_BYTES = 4096  # of a command line that are read: names of interpreters, options and scripts are shorter
_MAX_PARENTS = 3  # a process of multiprocessing was started by the script, or by its fork server
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*t?")
_FROM_TORCH = "pt_main_thread"  # what torch calls each process that imports it
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")  # options of Python that the next argument belongs to


@dataclass(frozen=True)
class _Process:
    name: str  # at most 15 bytes
    parent: int
    start_time: int


def process_name(pid: int, start_time: int = 0) -> str:
    """Returns the name of a process: the one that it gave itself, or the script that Python runs in it.

    Empty if it is hidden or the process has ended. The text may contain any character: escape it where it is shown.

    Args:
        pid: of the process.
        start_time: clock ticks since boot, which distinguish it from a later process with that pid; 0: unknown.
    """
    process = _read_process(pid)
    if process is None or start_time not in (0, process.start_time):
        return ""
    if process.name != _FROM_TORCH and not _INTERPRETER.fullmatch(process.name):
        script = _script(pid, process.start_time)
        return script if script.startswith(process.name) else process.name  # the kernel cuts the name of a script off
    return _script(pid, process.start_time) or process.name


def name_this_process(name: str) -> None:
    """Gives this process a name, which the kernel keeps: `process_name`, ps and top show it.

    Raises:
        TypeError: the name is not a str.
        ValueError: the kernel cannot keep it as it is.
        OSError: the kernel refuses.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; expected a str")
    if not 1 <= len(name.encode(errors="replace")) <= 15 or not name.isprintable():
        raise ValueError(f"name is {name!r:.100}; expected 1 to 15 bytes without control characters")
    with open("/proc/self/comm", "wb", buffering=0) as file:
        file.write(name.encode(errors="replace"))


def describe_process(pid: int, name: str) -> str:
    """`process 12 ('actor')`, or without a name if it is hidden. Control characters are escaped."""
    return f"process {pid} ({name!r})" if name else f"process {pid}"


def _read_process(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            before, _, rest = file.read().rpartition(")")  # the name itself may have brackets
    except OSError:
        return None
    fields = rest.split()  # from the 3rd on: the state, the parent, ... the start time
    return _Process(before.partition("(")[2], int(fields[1]), int(fields[19]))


@functools.lru_cache(maxsize=4096)
def _script(pid: int, start_time: int) -> str:
    """The script that Python runs in a process; of one of multiprocessing, the script that started it.

    Empty if it is another program. Kept, because programs that show figures ask for the same names every second.
    """
    for _ in range(_MAX_PARENTS):
        process = _read_process(pid)
        arguments = _arguments(pid)
        if process is None or not _INTERPRETER.fullmatch(os.path.basename(arguments[0])):
            return ""
        if not any(argument.startswith("from multiprocessing.") for argument in arguments):
            return _shortened(script_name(arguments))
        pid = process.parent  # started by `spawn`, or by a fork server
    return ""


def script_name(arguments: list[str]) -> str:
    """The script in a command line of Python, without its folder, or the module of `-m`; empty if there is none."""
    rest = iter(arguments[1:])
    for argument in rest:
        if argument.startswith("-m"):
            return argument[2:] or next(rest, "")
        if argument.startswith("-c"):
            return ""  # it is followed by code
        if argument in _WITH_VALUE:
            next(rest, None)
        elif not argument.startswith("-"):
            return os.path.basename(argument)
    return ""


def _shortened(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"


def _arguments(pid: int) -> list[str]:
    """The beginning of a command line; one empty argument if it cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            data = file.read(_MAX_ARGUMENTS_BYTES)
    except OSError:
        return [""]
    return data.decode(errors="replace").rstrip("\0").split("\0")
