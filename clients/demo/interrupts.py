"""Interrupts: notes Ctrl-C, SIGTERM and SIGHUP, so that a loop can end when it is ready."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Within the context, a signal is only noted and raises nothing, so nothing is cut off half-way.

    After a signal, that stays so beyond the context: a second Ctrl-C does not disturb the end. A signal that is
    ignored, as `nohup` leaves SIGHUP, stays ignored.

    Attributes:
        exit_code: 128 + the signal's number, as in shells; 0 before the first signal.
    """

    def __init__(self) -> None:
        self.exit_code = 0

    def __enter__(self) -> Interrupts:
        heard = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.exit_code == 0:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.exit_code = 128 + number
