"""GatherThreads: the threads that a handle's calls start to gather large batches together."""

from __future__ import annotations

from shmreplay import _core

MAX_THREADS = _core.MAX_GATHER_THREADS


class GatherThreads:
    """Those of one attachment of a handle. They end with its client, with its sampler, or with the handle."""

    def __init__(self, native: _core.Table) -> None:
        self.native = native

    def close(self) -> None:
        """Ends them; those of calls in flight when these are over. Idempotent."""
        self.native.end_threads()
