"""Feed: asks the daemon for figures beside the screen, so that keys work while it is silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from shmreplay.clients.client import Client
from shmreplay.errors import EXPECTED_ERRORS

ITEMS_EVERY_S = 10.0  # histograms look at many items


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
