"""One process of a storm, as the storm sees it."""

import os
import pathlib
import select
import signal
from dataclasses import dataclass

GETS_ON_S = 120.0  # a bound on waiting for what must happen, on however busy a machine


@dataclass
class Process:
    """Forked, at work in its role."""

    role: str
    ident: int
    pid: int
    log: pathlib.Path
    is_stopped: bool = False

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)
        self.is_stopped = number == signal.SIGSTOP

    def has_told(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def wait(self) -> None:
        """Returns when it is dead; it is reaped by then."""
        pidfd = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            assert poll.poll(GETS_ON_S * 1000), f"{self.role} {self.ident}, pid {self.pid}, does not die"
        finally:
            os.close(pidfd)
        os.waitpid(self.pid, 0)
