"""Talking to systemd (sd_notify): ready, status, stopping; and a watchdog that the event loop itself answers.

A message is a datagram of NAME=value lines to $NOTIFY_SOCKET. Without that variable, which is how it is everywhere but
under systemd, nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

log = logging.getLogger("shmreplayd")

TICK_S = 10.0  # how often the status is said anew, where no watchdog asks for more
EXTENSION_S = 60.0  # so much longer a start or a stop may take, again at every tick: for as long as the loop lives
SEND_TIMEOUT_S = 1.0  # for a queue of systemd's that is full
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """What systemd is told of this process.

    Args:
        environment: where systemd says how it is to be told. Its variables are taken out, so that no child process
            believes that they are meant for it.

    Attributes:
        describe: how the daemon is, in one line; asked for at each message.
        tick_s: seconds from one sign of life to the next: at most half of what the watchdog allows.

    Variables that make no sense are ignored, with a warning: nobody but systemd makes them.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        said = {name: environment.pop(name, "") for name in _VARIABLES}
        self._address = _address(said["NOTIFY_SOCKET"])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None
        if self._socket is not None:
            self._socket.settimeout(SEND_TIMEOUT_S)
        watchdog_s = _watchdog_s(said["WATCHDOG_USEC"], said["WATCHDOG_PID"])
        self._answers_watchdog = self._socket is not None and watchdog_s is not None
        self.tick_s = min(TICK_S, watchdog_s / 2) if watchdog_s is not None else TICK_S
        self.describe: Callable[[], str] = lambda: "starting"
        self._is_ready = False
        self._is_heard = True
        self._status = ""

    @property
    def is_listened_to(self) -> bool:
        """Whether there is anybody to tell."""
        return self._socket is not None

    def ready(self) -> None:
        """Clients can work; or, behind `reloading`, the new configuration is in effect."""
        self._is_ready = True
        self._send("READY=1", *self._news())

    def reloading(self) -> None:
        """The configuration is being read again; `ready` says when that is done."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The end has begun. A last checkpoint may take as long as it needs."""
        self._is_ready = False
        self._send("STOPPING=1", _extension(), *self._news())

    def failed(self, reason: str) -> None:
        """Why it ends; `systemctl status` shows it."""
        self._send(_status(f"failed: {reason}"))

    async def tell(self) -> None:
        """Says again and again that the loop lives, and how the daemon is, for as long as this task runs.

        A loop that hangs says nothing; then systemd ends the daemon once its watchdog's time, or that for a start or
        stop, is up.
        """
        if self._socket is None:
            return
        while True:
            lines = ["WATCHDOG=1"] if self._answers_watchdog else []
            if not self._is_ready:
                lines.append(_extension())
            lines += self._news()
            if lines:
                self._send(*lines)
            await asyncio.sleep(self.tick_s)

    def _news(self) -> list[str]:
        """The status, if it is another one than was said last."""
        before, self._status = self._status, self.describe()
        return [_status(self._status)] if self._status != before else []

    def _send(self, *lines: str) -> None:
        if self._socket is None or self._address is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
            self._is_heard = True
        except OSError as error:
            if self._is_heard:  # said once, not at every tick
                log.warning("systemd does not hear %s: %s", lines[0], error)
            self._is_heard = False

    def close(self) -> None:
        """Says nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _address(text: str) -> str | None:
    """A path, or, behind an @, an abstract name."""
    if text and not text.startswith(("/", "@")):
        log.warning("$NOTIFY_SOCKET is %r; expected an absolute path, or @ and a name: systemd is told nothing", text)
        return None
    return f"\0{text[1:]}" if text.startswith("@") else text or None


def _watchdog_s(usec: str, pid: str) -> float | None:
    """How long the watchdog waits; None if there is none for this process."""
    if not usec or (pid and pid != str(os.getpid())):
        return None
    if not usec.isdecimal() or int(usec) == 0:
        log.warning("$WATCHDOG_USEC is %r; expected a number of microseconds above 0: it is not answered", usec)
        return None
    return int(usec) / 1e6


def _extension() -> str:
    return f"EXTEND_TIMEOUT_USEC={int(EXTENSION_S * 1e6)}"


def _status(text: str) -> str:
    return f"STATUS={text}".replace("\n", " ")
