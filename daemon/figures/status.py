"""The status line of the daemon, for `systemctl status`."""

from __future__ import annotations

from shmreplay.base.host_memory import show_bytes
from shmreplay.daemon.arenas.registry import Registry
from shmreplay.daemon.checkpoints.checkpoints import Checkpoints


def status_line(registry: Registry, checkpoints: Checkpoints, num_clients: int) -> str:
    """Tables, clients, and what is wrong. Reads no segment, so it may run on the event loop."""
    num_tables = sum(len(arena.tables) for arena in registry.arenas)
    num_bytes = sum(sum(arena.sizes) for arena in registry.arenas)
    parts = [
        f"{_count(num_tables, 'table')} in {show_bytes(num_bytes)}",
        f"{_count(num_clients, 'client')}, {_count(len(registry.reaper.processes), 'process', 'processes')}",
    ]
    failed = [repr(arena.name) for arena in registry.arenas if arena.failure is not None]
    if failed:
        parts.append(f"FAILED: arena {', '.join(failed)}")
    saved = checkpoints.status()
    if saved is not None and saved["error"] is not None:
        parts.append(f"NO CHECKPOINT: {saved['error']}")
    elif saved is not None:
        parts.append(f"checkpoint of {saved['saved_s_ago'] / 60:.0f} min ago")
    return "; ".join(parts)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
