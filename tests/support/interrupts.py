"""Interrupts at chosen and at random moments of a call, and whether the call hands out what it took all the same."""

from __future__ import annotations

import dis
import random
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# After these instructions. CALL_METHOD and after: Python 3.10.
LOOKS_FOR_SIGNALS = {
    "RESUME", "JUMP_BACKWARD", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "CALL_METHOD", "CALL_FUNCTION",
    "CALL_FUNCTION_KW", "JUMP_ABSOLUTE",
}  # fmt: skip


# Functions of clients/ that native functions call.
CALLED_BY_NATIVE = {"_made", "_joined", "_copies", "_done_by"}


class Interrupt(BaseException):
    """What the handlers raise, as KeyboardInterrupt after Ctrl-C. It has what errors of calls have."""

    batch: Any
    keys: Any
    done: Any
    num_rows: int


def at_every_moment(call: Callable[[], Any]) -> Iterator[tuple[Any, BaseException | None]]:
    """Makes the call again and again, interrupted one moment later each time, until it ends before the moment.

    Moments are those at which Python calls the handlers of signals: when it has entered a function, has come back from
    a native one, or begins a loop again. What a native function does that is called from C has none here.

    Yields:
        What the call returned, or None; and what it raised, or None. The caller prepares the next call meanwhile.
    """
    yield _Moment(sys.maxsize).interrupt(call)  # from then on, what a first call makes and keeps is there
    moment = _Moment(1)
    while True:
        yield moment.interrupt(call)
        if moment.left > 0:
            return
        moment = _Moment(moment.number + 1)


class _Moment:
    """One moment of a call, counted from 1."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.left = number  # moments that have yet to come; 0: it was there
        self._frames: dict[FrameType, _Last] = {}

    def interrupt(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """Raises Interrupt at this moment of the call. Returns as `at_every_moment` yields."""
        found: Any = None
        raised: BaseException | None = None
        sys.settrace(self._enter)
        try:
            found = call()
        except BaseException as error:  # noqa: BLE001  # given to the caller
            raised = error
        finally:
            sys.settrace(None)
            self._frames.clear()
        return found, raised

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_name
        is_called_by_native = name in CALLED_BY_NATIVE or name.startswith("__")
        if not is_called_by_native and (caller := self._frames.get(frame.f_back)) is not None:  # type: ignore[arg-type]
            caller.instruction = ""  # after a call of Python code, Python does not look
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        last = self._frames.setdefault(frame, _Last())

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "opcode" and self.left > 0:
                if last.instruction in LOOKS_FOR_SIGNALS:
                    self.left -= 1
                    if self.left == 0:
                        raise Interrupt  # Python then traces no more
                last.instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            return trace

        return trace


class _Last:
    """The last instruction of a frame."""

    instruction = ""


class RandomInterrupts:
    """Interrupts calls at random moments by a timer, some of them several times within microseconds."""

    def __init__(self, seed: int, longest_s: float) -> None:
        """`longest_s`: until the first interrupt, at most."""
        self._random = random.Random(seed)
        self._longest_s = longest_s
        self._left = 0  # interrupts to come; 0: the call is over
        self._again_s = 0.0  # until the next of them
        self.num_interrupted = 0  # calls that ended with an interrupt
        signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self._left == 0:
            return
        self._left -= 1
        if self._left > 0:  # a timer that repeats by itself could leave no time for anything else
            signal.setitimer(signal.ITIMER_REAL, self._again_s)
        raise Interrupt

    def during(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """Makes the call. Returns as `at_every_moment` yields."""
        found: Any = None
        raised: BaseException | None = None
        self._again_s = self._random.choice((0.0, 5e-6, 20e-6))
        first_s = self._random.random() * self._longest_s + 1e-6
        try:
            self._left = 1 if self._again_s == 0 else 3
            signal.setitimer(signal.ITIMER_REAL, first_s)
            found = call()
            self._left = 0  # nothing that can be interrupted is between these two lines
        except BaseException as error:  # noqa: BLE001  # given to the caller
            self._left = 0
            raised = error
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.num_interrupted += isinstance(raised, Interrupt)
        return found, raised
