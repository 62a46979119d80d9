"""Deeds: what keys do to tables, beside the screen, so that it stays alive while the daemon is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shmreplay.clients.client import Client
from shmreplay.errors import EXPECTED_ERRORS, ShmReplayError


class Deeds:
    """Does one thing after another to a daemon's tables, beside the screen."""

    def __init__(self, address: str, timeout_s: float, done: Callable[[], None]) -> None:
        self._client = Client(address, timeout_s)
        self._done = done
        self._lock = threading.Lock()
        self._at_work: str | None = None
        self._result: tuple[str, bool] | None = None

    def do(self, what: str, deed: Callable[[Client], str]) -> None:
        """Begins it; what it returns is its result. Raises ShmReplayError if the one before is not done yet."""
        with self._lock:
            if self._at_work is not None:
                raise ShmReplayError(f"still at work: {self._at_work}")
            self._at_work = what
        threading.Thread(target=self._run, args=(what, deed), name="shmreplay-top-deed", daemon=True).start()

    def take(self) -> tuple[str, bool] | None:
        """What was done, or why not and True. None if nothing is new."""
        with self._lock:
            result, self._result = self._result, None
            return result

    def _run(self, what: str, deed: Callable[[Client], str]) -> None:
        try:
            result = deed(self._client), False
        except EXPECTED_ERRORS as error:
            result = str(error), True
        except Exception as error:  # noqa: BLE001  # our own fault: told as well
            result = f"{what}: unexpected {error!r}; please report it", True
        with self._lock:
            self._at_work, self._result = None, result
        self._done()
