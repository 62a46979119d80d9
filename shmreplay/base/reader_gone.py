"""Ends a program silently, as other programs do, when the reader of its output has closed the pipe."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable

READER_GONE = 128 + signal.SIGPIPE  # a shell's exit code for a program killed by SIGPIPE
_OUTPUTS = (1, 2)  # stdout and stderr


def until_reader_goes(run: Callable[[], int]) -> int:
    """Returns what `run` returns, after flushing its output; READER_GONE if the reader of the output has gone."""
    try:
        try:
            return run()
        finally:
            if sys.stdout is not None:  # None if it was closed before the start
                sys.stdout.flush()
    except BrokenPipeError:
        gone = outputs_without_reader()
        if not gone:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for fd in gone:
            os.dup2(nowhere, fd)  # so that the rest of the buffer is not printed at exit
        os.close(nowhere)
        return READER_GONE


def outputs_without_reader() -> list[int]:
    """Which of stdout and stderr have lost their reader. A BrokenPipeError alone does not say it was one of them."""
    poll = select.poll()
    for fd in _OUTPUTS:
        poll.register(fd, 0)
    return [fd for fd, events in poll.poll(0) if events & (select.POLLERR | select.POLLHUP)]
