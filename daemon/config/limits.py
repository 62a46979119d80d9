"""Limits: how much the tables of one daemon may take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shmreplay.base.host_memory import show_bytes
from shmreplay.errors import ShmReplayError
from shmreplay.tables.table import Table


@dataclass(frozen=True)
class Limits:
    """Limits from the configuration; None means no limit.

    Attributes:
        memory_bytes: shared memory of all arenas.
        streams: `max_streams` of one table; of a table with shards, of all its shards together.
    """

    memory_bytes: int | None = None
    streams: int | None = None

    def check_streams(self, tables: Iterable[Table]) -> None:
        """Raises ValueError if a table asks for more streams than the limit."""
        for table in tables:
            asked = table.owner.max_streams
            if self.streams is not None and asked > self.streams:
                raise ValueError(
                    f"table {table.owner.name!r}: max_streams is {asked}; this shmreplayd allows at most "
                    f"{self.streams} (limits.streams)"
                )

    def check_memory(self, purpose: str, num_bytes: int, taken_bytes: int) -> None:
        """Raises ShmReplayError if `num_bytes` more would exceed the limit, when `taken_bytes` are in use."""
        if self.memory_bytes is not None and taken_bytes + num_bytes > self.memory_bytes:
            taken = f"{show_bytes(taken_bytes)} are in use, " if taken_bytes else ""
            raise ShmReplayError(
                f"{purpose} needs {show_bytes(num_bytes)}: {taken}this shmreplayd allows "
                f"{show_bytes(self.memory_bytes)} for all tables (limits.memory); drop some, make them smaller, or "
                "raise the limit"
            )
