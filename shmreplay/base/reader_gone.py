"""What is printed into a pipe that nobody reads any more: the end, without a word, as of other programs."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable

READER_GONE = 128 + signal.SIGPIPE  # what a shell makes of a program that ended by it
_OUTPUTS = (1, 2)  # stdout and stderr


def until_reader_goes(run: Callable[[], int]) -> int:
    """Returns what `run` does, once all that it printed has been taken; READER_GONE if its reader went before."""
    try:
        try:
            return run()
        finally:
            if sys.stdout is not None:  # as where it was closed before the start
                sys.stdout.flush()
    except BrokenPipeError:
        gone = outputs_without_reader()
        if not gone:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for fd in gone:
            os.dup2(nowhere, fd)  # else what is left is printed at the exit
        os.close(nowhere)
        return READER_GONE


def outputs_without_reader() -> list[int]:
    """Which of stdout and stderr are a pipe whose reader has gone: a BrokenPipeError may be about another one."""
    poll = select.poll()
    for fd in _OUTPUTS:
        poll.register(fd, 0)
    return [fd for fd, events in poll.poll(0) if events & (select.POLLERR | select.POLLHUP)]
