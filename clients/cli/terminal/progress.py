"""How far long work is, on stderr."""

from __future__ import annotations

import time

from shmreplay.clients.cli.terminal.options import show_progress

INTERVAL_S = 1.0


class Progress:
    """Says every second how many are done; nothing of work that is done sooner."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._said = time.monotonic()

    def tell(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said >= INTERVAL_S:
            self._said = now
            show_progress(f"{done} of {self._total} {self._what}")
