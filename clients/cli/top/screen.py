"""Screen: draws on the terminal, and restores it however the program ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Any

from shmreplay.clients.cli.top.keys import Keys
from shmreplay.clients.cli.top.text import Line
from shmreplay.errors import ShmReplayError

ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"  # the alternate screen, no cursor
LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
ESCAPE_S = 0.05  # a terminal sends the bytes of one key within this time
_STYLES = {
    "bold": "1", "dim": "2", "title": "7", "selected": "7", "good": "32", "warn": "33", "bad": "1;31", "bar": "36",
}  # fmt: skip
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Screen:
    """The terminal of stdin and stdout. A context manager, within which the screen is in use.

    Raises:
        ShmReplayError: they are not a terminal.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise ShmReplayError("needs a terminal; --once prints the figures once, --once --json as JSON")
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._has_colours = not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"
        self._keys = Keys()
        self._shown: list[str] = []
        self._woken, self._waker = os.pipe()
        for fd in (self._woken, self._waker):
            os.set_blocking(fd, False)
        self._waking = threading.RLock()  # reentrant: a signal handler may interrupt another
        self._has_ended = False
        self._before: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        found = os.get_terminal_size(self._out)
        return (found.columns, found.lines) if found.columns > 0 and found.lines > 0 else (80, 24)

    @property
    def has_colours(self) -> bool:
        """Whether the terminal shows colours, so that they mark the selected row."""
        return self._has_colours

    def wake(self) -> None:
        """Ends a `wait`. Any thread and signal handlers may call it."""
        with self._waking, contextlib.suppress(BlockingIOError):  # the pipe is full, so it wakes anyway
            if not self._has_ended:
                os.write(self._waker, b"!")

    def wait(self, timeout_s: float) -> list[str] | None:
        """Waits for keys, a `wake` or the timeout. Returns the keys that were pressed; None at the end of input."""
        waited_s = min(timeout_s, ESCAPE_S) if self._keys.is_open else timeout_s
        ready, _, _ = select.select([self._in, self._woken], [], [], waited_s)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._in not in ready:
            return self._keys.end() if self._keys.is_open and not ready else []
        data = os.read(self._in, 4096)
        return self._keys.feed(data) if data else None

    def paint(self, lines: list[Line]) -> None:
        """Shows the lines. Writes only those that changed."""
        drawn = [self._draw(line) for line in lines]
        if len(drawn) != len(self._shown):
            self._shown = [""] * len(drawn)
            self._write("\x1b[0m\x1b[2J")
        changed = [
            f"\x1b[{row + 1};1H{line}\x1b[0m\x1b[K"
            for row, (line, before) in enumerate(zip(drawn, self._shown, strict=True))
            if line != before
        ]
        self._shown = drawn
        self._write("".join(changed))

    def redraw(self) -> None:
        """Has the next `paint` write all lines."""
        self._shown = []

    def __enter__(self) -> Screen:
        self._before = termios.tcgetattr(self._in)
        try:
            for number in (signal.SIGWINCH, signal.SIGTSTP, *_ENDS):
                self._handlers[number] = signal.signal(number, self._on_signal)
            self._take()
        except BaseException:  # such as a Ctrl-C
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for number in (signal.SIGINT, *_ENDS):  # a second signal must not interrupt this
            self._handlers.setdefault(number, signal.getsignal(number))
            signal.signal(number, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError, termios.error):  # the terminal itself may be gone
                self._give_back()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            with self._waking:  # threads may still run
                self._has_ended = True
                os.close(self._woken)
                os.close(self._waker)

    def _take(self) -> None:
        tty.setcbreak(self._in)  # Ctrl-C and Ctrl-Z stay signals
        self.redraw()
        self._write(ENTER)

    def _give_back(self) -> None:
        self._write(LEAVE)
        termios.tcsetattr(self._in, termios.TCSAFLUSH, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._give_back()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)  # returns when the shell continues it
            signal.signal(signal.SIGTSTP, self._on_signal)
            self._take()
        elif number != signal.SIGWINCH:
            raise SystemExit(128 + number)
        self.redraw()
        self.wake()

    def _draw(self, line: Line) -> str:
        if not self._has_colours:
            return "".join(text for text, _ in line)
        return "".join(
            f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style in _STYLES else text for text, style in line if text
        )

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding, errors="replace")
        while data:
            data = data[os.write(self._out, data) :]
