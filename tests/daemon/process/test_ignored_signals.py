"""Signals that an embedded daemon ignores; what they mean for the whole is in tests/clients/test_server.py."""

import signal

import pytest

from tests.support.daemons import Run

SCRIPT = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.kill(os.getpid(), signal.SIGTERM)  # came before we decided about it
from shmreplay.daemon.process.ignored_signals import ignore_signals
ignore_signals()
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
print("ignored", flush=True)
os.kill(os.getpid(), int(sys.argv[1]))
print("goes on", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGABRT, signal.SIGRTMIN])
@pytest.mark.one_quick
def test_a_signal_is_ignored_also_one_that_came_while_it_was_blocked(run_script: Run, number: int) -> None:
    script = run_script(SCRIPT, str(int(number)))
    assert (script.line(), script.line()) == ("ignored", "goes on")
    assert script.finish()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_fault_and_sigkill_end_the_process(run_script: Run, number: int) -> None:
    script = run_script(SCRIPT, str(int(number)))
    assert script.line() == "ignored"
    assert script.finish()[0] == -number
