"""CheckpointOptions: the settings of section [checkpoints]."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointOptions:
    """Where checkpoints go, and when they are made."""

    directory: str | None = None
    interval_s: float | None = None
    keep: int = 2
    at_stop: bool = False
