"""What a configuration comes to, in words: for `shmreplayd --check-config`."""

from __future__ import annotations

from shmreplay.daemon.config import DaemonConfig
from shmreplay.estimates import estimate
from shmreplay.host_memory import show_bytes
from shmreplay.plan import by_arena


def summary(config: DaemonConfig) -> str:
    """Every setting with where it comes from, what the tables warn of, and the memory that they take."""
    lines = [f"{key} = {given}  ({_origin(key, given.where)})" for key, given in config.settings.items()]
    lines += [f"warning: {note}" for note in config.notes]
    if config.tables:
        arenas = by_arena(config.tables)
        num_bytes = sum(estimate(tables).total_bytes for tables in arenas.values())
        names = ", ".join(table.name for table in config.tables)
        lines.append(
            f"tables {names}: {show_bytes(num_bytes)} of shared memory in {len(arenas)} arena"
            f"{'s' if len(arenas) > 1 else ''}; `shmreplay plan {config.file}` has every term"
        )
    return "\n".join(lines)


def _origin(key: str, where: str) -> str:
    """The place without the key, which stands there already."""
    return where.removesuffix(f": {key}")
