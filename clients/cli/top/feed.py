"""What talks to the daemon beside the screen, so that keys work while it is silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from shmreplay.clients.client import Client
from shmreplay.errors import ShmReplayError

ITEMS_EVERY_S = 10.0  # histograms look at many items
EXPECTED = (ShmReplayError, OSError, ValueError, TypeError)


class Feed:
    """A thread that asks for figures again and again; `wake` is called with every answer, and with none.

    It is not waited for at the end: a daemon that says nothing could hold it for half a minute.
    """

    def __init__(self, address: str, interval_s: float, wake: Callable[[], None]) -> None:
        self._client = Client(address, 0.0)  # what is not there now is asked again the next time
        self._interval_s = interval_s
        self._wake = wake
        self._again = threading.Event()
        self._lock = threading.Lock()
        self._news: tuple[dict[str, Any], float] | None = None
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="shmreplay-top-feed", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def look_now(self) -> None:
        """Asks at once, as after something was changed."""
        self._again.set()

    def take(self) -> tuple[tuple[dict[str, Any], float] | None, str | None]:
        """The stats that have come since, with their moment of time.monotonic(), and why there are none now."""
        with self._lock:
            news, self._news = self._news, None
            return news, self._problem

    def _run(self) -> None:
        items_at_s = float("-inf")
        while True:
            with_items = time.monotonic() - items_at_s >= ITEMS_EVERY_S
            try:
                stats = self._client.stats(items=with_items)
            except EXPECTED as error:
                found: tuple[dict[str, Any], float] | None = None
                problem: str | None = str(error)
            else:
                found, problem = (stats, time.monotonic()), None
                items_at_s = time.monotonic() if with_items else items_at_s
            with self._lock:
                self._news, self._problem = found or self._news, problem
            self._wake()
            self._again.wait(self._interval_s)
            self._again.clear()


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
        threading.Thread(target=self._run, args=(deed,), name="shmreplay-top-deed", daemon=True).start()

    def take(self) -> tuple[str, bool] | None:
        """What was done, or why not and True. None if nothing is new."""
        with self._lock:
            result, self._result = self._result, None
            return result

    def _run(self, deed: Callable[[Client], str]) -> None:
        try:
            result = deed(self._client), False
        except EXPECTED as error:
            result = str(error), True
        with self._lock:
            self._at_work, self._result = None, result
        self._done()
