"""TableActions: runs actions on tables in threads, so that the screen works while the daemon is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shmreplay.clients.client import Client
from shmreplay.errors import EXPECTED_ERRORS, ShmReplayError


class TableActions:
    """Runs one action after the other in the background."""

    def __init__(self, address: str, timeout_s: float, done: Callable[[], None]) -> None:
        self._client = Client(address, timeout_s)
        self._done = done
        self._lock = threading.Lock()
        self._at_work: str | None = None
        self._result: tuple[str, bool] | None = None

    def do(self, what: str, action: Callable[[Client], str]) -> None:
        """Starts an action, which returns its result as a text. Raises ShmReplayError if another one still runs."""
        with self._lock:
            if self._at_work is not None:
                raise ShmReplayError(f"still at work: {self._at_work}")
            self._at_work = what
        threading.Thread(target=self._run, args=(what, action), name="shmreplay-top-action", daemon=True).start()

    def take(self) -> tuple[str, bool] | None:
        """The result of an action, and whether it failed. None if there is no new result."""
        with self._lock:
            result, self._result = self._result, None
            return result

    def _run(self, what: str, action: Callable[[Client], str]) -> None:
        try:
            result = action(self._client), False
        except EXPECTED_ERRORS as error:
            result = str(error), True
        except Exception as error:  # noqa: BLE001  # our own fault: shown, too
            result = f"{what}: unexpected {error!r}; please report it", True
        with self._lock:
            self._at_work, self._result = None, result
        self._done()
