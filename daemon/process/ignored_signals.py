"""An embedded daemon ignores signals: they are meant for the process that made it, which may want to save first.

Batch systems, systemd and containers send SIGTERM, SIGUSR1 and others to every process of a job, helpers included.
"""

from __future__ import annotations

import signal

# A fault of ours must end us as usual, and SIGCHLD would not be waited for. SIGKILL and SIGSTOP cannot be ignored.
_KEPT = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCONT,
    signal.SIGCHLD,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
}


def ignore_signals() -> None:
    """Ignores every signal that asks a process to end; not SIGKILL, nor those of faults. Main thread only.

    Then it unblocks all: the parent has them blocked while it starts us, so none comes before this call.
    """
    for number in signal.valid_signals() - _KEPT:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
