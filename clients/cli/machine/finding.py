"""Finding: one thing that the doctor looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What was looked at, what there is, why it matters, and what to do about it, if there could be more."""

    about: str
    found: str
    why: str
    remedy: str | None = None
