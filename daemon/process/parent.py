"""Parent: the process that an embedded daemon ends with, told from every other one of this machine.

A pid alone is not enough. The kernel gives it to another process later, and each container has a process 1. After a
restart, the new one may even have a pid namespace with the number of the old one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shmreplay import _core
from shmreplay.base.processes import boot_id, has_ended, own_namespace

_LINE = re.compile(r"parent ([0-9]{1,9}) ([0-9]{1,20}) ([0-9a-f]+) ([0-9]{1,20}) ([0-9]{1,20})")


@dataclass(frozen=True)
class Parent:
    """A process by pid, start time in clock ticks since boot, boot, and its namespaces of pids and of the clock."""

    pid: int
    start_time: int
    boot_id: str
    pid_namespace: int
    time_namespace: int

    @classmethod
    def of(cls, pid: int) -> Parent:
        """The process that has this pid now, in this process' namespaces."""
        return cls(pid, _core.process_start_time(pid), *_here())

    @classmethod
    def from_line(cls, line: str) -> Parent | None:
        """What `line` returned; None for any other text."""
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        pid, start_time, boot, pid_namespace, time_namespace = match.groups()
        return cls(int(pid), int(start_time), boot, int(pid_namespace), int(time_namespace))

    def line(self) -> str:
        """One line of text, for the lock file."""
        return f"parent {self.pid} {self.start_time} {self.boot_id} {self.pid_namespace} {self.time_namespace}"

    def has_ended(self) -> bool | None:
        """Whether it has ended; None if this process cannot know, because it is in other namespaces."""
        here = _here()
        if self.boot_id != here[0]:
            return True
        if (self.boot_id, self.pid_namespace, self.time_namespace) != here:
            return None
        return has_ended(self.pid, self.start_time)


def _here() -> tuple[str, int, int]:
    """This boot, and this process' namespaces. Raises OSError if /proc hides one."""
    return boot_id(), own_namespace("pid"), own_namespace("time")
