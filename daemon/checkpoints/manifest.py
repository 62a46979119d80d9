"""The first section of a checkpoint: who wrote it, and what is needed to make its arenas again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from shmreplay import _core
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.arenas.restored_arena import GEOMETRY
from shmreplay.protocol import package_version


def manifest(label: str, arenas: Sequence[ManagedArena]) -> dict[str, Any]:
    return {
        "label": label,
        "created": time.time(),
        "package": package_version(),
        "layout_version": _core.LAYOUT_VERSION,
        "layout_hash": _core.layout_hash(),
        "arenas": [_arena_entry(arena) for arena in arenas],
    }


def _arena_entry(arena: ManagedArena) -> dict[str, Any]:
    """What is needed to make the arena again: its specs, and the sizes that they were planned to."""
    stats = arena.native.stats()
    return {
        "name": arena.name,
        "specs": arena.native.specs,
        "geometry": {name: stats[name] for name in GEOMETRY},
        "bytes": sum(arena.sizes),
    }
