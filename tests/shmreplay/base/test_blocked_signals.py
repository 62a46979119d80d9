"""Signals that come while a process is started are delivered afterwards, and the process inherits the block."""

import signal
import subprocess
import sys
import threading

import pytest

from shmreplay.base.blocked_signals import signals_blocked


def test_a_signal_comes_at_the_end_and_a_child_starts_with_it_blocked() -> None:
    script = "import signal; print(signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with signals_blocked({signal.SIGUSR1}):
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "True\n"
            assert heard == []
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_error_unblocks_them() -> None:
    with pytest.raises(KeyError), signals_blocked({signal.SIGUSR1}):
        raise KeyError
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
