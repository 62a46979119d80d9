"""GatherThreads: the threads that gather large batches for the calls of a handle."""

from __future__ import annotations

from shmreplay import _core


class GatherThreads:
    """The threads of one attachment of a handle. They end with its client, its sampler or the handle."""

    def __init__(self, native: _core.Table) -> None:
        self.native = native

    def close(self) -> None:
        """Ends the threads, those of running calls when these calls return. Idempotent."""
        self.native.end_threads()
