"""Feed: asks the daemon for figures in a thread, so that keys work while the daemon is silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from shmreplay.clients.client import Client
from shmreplay.errors import EXPECTED_ERRORS

ITEMS_EVERY_S = 10.0  # histograms read many items


class Feed:
    """A thread that asks for figures again and again. It calls `wake` after each answer or failure.

    The program does not wait for the thread at its end: a silent daemon could block it for half a minute.
    """

    def __init__(self, address: str, interval_s: float, wake: Callable[[], None]) -> None:
        self._client = Client(address, 0.0)  # a daemon that is not there is asked again the next time
        self._interval_s = interval_s
        self._wake = wake
        self._again = threading.Event()
        self._lock = threading.Lock()
        self._news: tuple[dict[str, Any], float] | None = None
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="shmreplay-top-feed", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def look_now(self) -> None:
        """Asks at once, as after a change."""
        self._again.set()

    def take(self) -> tuple[tuple[dict[str, Any], float] | None, str | None]:
        """The newest stats since the last call, with their time by time.monotonic(), and why there are none now."""
        with self._lock:
            news, self._news = self._news, None
            return news, self._problem

    def _run(self) -> None:
        items_at_s = float("-inf")
        while True:
            with_items = time.monotonic() - items_at_s >= ITEMS_EVERY_S
            try:
                stats = self._client.stats(items=with_items)
            except EXPECTED_ERRORS as error:
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
