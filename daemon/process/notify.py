"""Notifier: tells systemd that the daemon is ready, its status, and its stop (sd_notify), and answers the watchdog.

A message is a datagram of NAME=value lines to $NOTIFY_SOCKET. Without that variable, so outside systemd, nothing is
sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

log = logging.getLogger("shmreplayd")

TICK_S = 10.0  # how often the status is sent, unless the watchdog needs more
EXTENSION_S = 60.0  # each tick gives a start or a stop this much more time, as long as the event loop runs
SEND_TIMEOUT_S = 1.0  # if systemd's queue is full
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Tells systemd about this process.

    Args:
        environment: has systemd's variables. They are removed, so that no child process uses them.

    Attributes:
        describe: returns the status in one line; called for each message.
        tick_s: seconds between two messages: at most half of the watchdog's time.

    Malformed variables are ignored, with a warning.
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
        """Whether systemd listens."""
        return self._socket is not None

    def ready(self) -> None:
        """Clients can connect; or, after `reloading`, the new configuration is in effect."""
        self._is_ready = True
        self._send("READY=1", *self._news())

    def reloading(self) -> None:
        """The configuration is being read again. Call `ready` afterwards."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The daemon stops. A last checkpoint may take as long as it needs."""
        self._is_ready = False
        self._send("STOPPING=1", _extension(), *self._news())

    def failed(self, reason: str) -> None:
        """The daemon fails. `systemctl status` shows the reason."""
        self._send(_status(f"failed: {reason}"))

    async def tell(self) -> None:
        """Sends a sign of life and the status at every tick, until the task is cancelled.

        If the event loop hangs, nothing is sent. Then systemd kills the daemon after the time of the watchdog, the
        start or the stop.
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
        """The status, if it has changed since the last message."""
        before, self._status = self._status, self.describe()
        return [_status(self._status)] if self._status != before else []

    def _send(self, *lines: str) -> None:
        if self._socket is None or self._address is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
            self._is_heard = True
        except OSError as error:
            if self._is_heard:  # logged once, not at every tick
                log.warning("cannot send %s to systemd: %s", lines[0], error)
            self._is_heard = False

    def close(self) -> None:
        """Closes the socket. Later messages are dropped."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _address(text: str) -> str | None:
    """A path; after an @, a name of an abstract socket."""
    if text and not text.startswith(("/", "@")):
        log.warning("$NOTIFY_SOCKET is %r; expected an absolute path, or @ and a name: systemd is told nothing", text)
        return None
    return f"\0{text[1:]}" if text.startswith("@") else text or None


def _watchdog_s(usec: str, pid: str) -> float | None:
    """Seconds that the watchdog waits; None if this process has none."""
    if not usec or (pid and pid != str(os.getpid())):
        return None
    if not usec.isdecimal() or int(usec) == 0:
        log.warning("$WATCHDOG_USEC is %r; expected a number of microseconds above 0: the watchdog is ignored", usec)
        return None
    return int(usec) / 1e6


def _extension() -> str:
    return f"EXTEND_TIMEOUT_USEC={int(EXTENSION_S * 1e6)}"


def _status(text: str) -> str:
    return f"STATUS={text}".replace("\n", " ")
