"""LastOutcome: what `stats` says of the last checkpoint."""

from __future__ import annotations

import time
from typing import Any


class LastOutcome:
    """The result of the last checkpoint saved, and of the failure after it, if any."""

    def __init__(self) -> None:
        self._saved: dict[str, Any] = {"path": None, "bytes": None, "seconds": None}
        self._saved_at: float | None = None
        self._error: str | None = None
        self._failed_at: float | None = None

    def saved(self, path: str, num_bytes: int, seconds: float) -> None:
        """A checkpoint was saved, or the newest one was found up to date. Clears the earlier failure."""
        self._saved = {"path": path, "bytes": num_bytes, "seconds": seconds}
        self._saved_at = time.monotonic()
        self._error = self._failed_at = None

    def failed(self, error: str) -> None:
        """A checkpoint was not saved."""
        self._error = error
        self._failed_at = time.monotonic()

    def describe(self) -> dict[str, Any] | None:
        """`path`, `bytes`, `seconds`, `saved_s_ago` of the last one saved; `error`, `failed_s_ago` of a later failure.

        None if none was tried.
        """
        if self._saved_at is None and self._failed_at is None:
            return None
        ago = {"saved_s_ago": _ago(self._saved_at), "failed_s_ago": _ago(self._failed_at)}
        return {**self._saved, **ago, "error": self._error}


def _ago(moment: float | None) -> float | None:
    return None if moment is None else time.monotonic() - moment
