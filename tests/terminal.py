"""Commands of shmreplay in a pseudo-terminal."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator


@contextlib.contextmanager
def at_a_terminal(*arguments: str, columns: int = 80) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The command, its terminal being its own, with that many columns; and the other end of it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "shmreplay.clients.cli.main", *arguments]
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd="/", env=env, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def read_all(terminal: int) -> bytes:
    """What was printed, until the command has ended."""
    found = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # nobody has the other end any more
            return found
        if not part:
            return found
        found += part
