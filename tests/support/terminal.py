"""A pseudo-terminal with a command in it, and what its screen shows."""

import errno
import fcntl
import os
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import pyte

from shmreplay.protocol import Deadline
from tests.support.waiting import WAIT_S

TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
LEFT = b"\x1b[?1049l"  # back from the alternate screen


class Terminal:
    """Runs `shmreplay` with some arguments, or a shell's script, on a new screen. It ends with the command."""

    def __init__(
        self,
        *arguments: str,
        script: str | None = None,
        columns: int = 80,
        rows: int = 24,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        ours, theirs = os.openpty()
        self._fd = ours
        self.resize(columns, rows)
        self.modes: list[Any] = termios.tcgetattr(theirs)
        command = [sys.executable, "-m", "shmreplay.clients.cli.main", *arguments]
        if script is not None:  # with job control, as at a prompt
            command = ["/bin/bash", "-m", "-c", script.format(command=shlex.join(command))]
        env = {
            **os.environ,
            "TERM": "xterm-256color",
            "PYTHONIOENCODING": "utf-8",
            "NO_COLOR": "",
            **(environment or {}),
        }
        # A session of its own, whose terminal this is: so that Ctrl-C, Ctrl-Z and a change of size reach it.
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", TAKE_TERMINAL, *command],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd="/", env=env, start_new_session=True,
        )  # fmt: skip
        self._theirs = theirs  # kept open: what was written last can still be read, and its modes looked at

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._fd)
        os.close(self._theirs)

    @property
    def lines(self) -> list[str]:
        """What the screen shows."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """The same as one."""
        return "\n".join(self.lines)

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Gives the terminal another size."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def until(self, condition: Callable[[str], bool] | str) -> str:
        """Reads until the screen shows a text, or what is asked for; fails the test if it never does."""
        holds = condition if callable(condition) else lambda text: condition in text
        deadline = Deadline(WAIT_S)
        while not holds(self.text):
            assert not deadline.is_over, f"the screen never came to that:\n{self.text}"
            assert self._read(deadline), f"it ended:\n{self.text}"
        return self.text

    def finish(self) -> int:
        """Reads until its end, and returns the exit code, negative for the signal that ended it."""
        deadline = Deadline(WAIT_S)
        while self._process.poll() is None:
            assert not deadline.is_over, f"it goes on:\n{self.text}"
            self._read(Deadline(0.02))
        while self._read(Deadline(0.0)):
            pass
        return self._process.returncode

    def is_restored(self) -> bool:
        """Whether the terminal is as it was before: its modes, its screen, its cursor."""
        return termios.tcgetattr(self._theirs) == self.modes and self.written.endswith(LEFT)

    def _read(self, deadline: Deadline) -> bool:
        """Reads what has been written, if anything comes in time. Whether something did."""
        remaining_s = deadline.remaining_s()
        ready, _, _ = select.select([self._fd], [], [], remaining_s)
        if not ready:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # nobody has the other end any more
                raise
            return False
        self.written += data
        self._stream.feed(data)
        return bool(data)
