"""Checks whether this machine has what a configuration needs, without starting a daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator

from shmreplay.base.host_memory import check_room
from shmreplay.daemon.config.configuration import DaemonConfig
from shmreplay.errors import ShmReplayError
from shmreplay.estimates import estimate
from shmreplay.segments.segment import SegmentStore
from shmreplay.tables.plan import by_arena


def preflight_warnings(config: DaemonConfig) -> Iterator[str]:
    """Yields a line for each problem.

    Checks as the current user, and now. The daemon may run as another user, and memory may become free.
    """
    try:
        directory = SegmentStore(config.directory).directory
        check_room(num_bytes_of_tables(config), directory, "what is declared in tables")
    except ShmReplayError as error:
        yield str(error)
    saved_to = config.settings["checkpoints.directory"]
    if saved_to.value is not None:
        yield from _checkpoint_warnings(saved_to.value, saved_to.where)


def num_bytes_of_tables(config: DaemonConfig) -> int:
    """Bytes of shared memory that the declared tables take."""
    return sum(estimate(tables).total_bytes for tables in by_arena(config.tables).values())


def _checkpoint_warnings(directory: str, where: str) -> Iterator[str]:
    there = directory
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        yield f"{where} is {directory!r}, but {there} is not a directory: no checkpoint can be saved"
    elif not os.access(there, os.W_OK | os.X_OK):
        yield f"{where} is {directory!r}, but uid {os.geteuid()} may not write to {there}: no checkpoint can be saved"
    elif there != directory:
        yield f"{where} is {directory!r}, which does not exist yet: the daemon will make it"
