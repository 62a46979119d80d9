"""Creates the tables that the configuration file declares."""

from __future__ import annotations

import logging

from shmreplay.daemon.arenas.registry import OnProgress, Registry
from shmreplay.daemon.config.configuration import DaemonConfig

log = logging.getLogger("shmreplayd")


async def create_declared(config: DaemonConfig, registry: Registry, on_progress: OnProgress) -> None:
    """Creates the missing tables: all of them, or none.

    A table that exists with other specs stays as it is, because processes use it; the log has the difference.

    Raises ShmReplayError if there is no room, ValueError if a table asks for more than the limits allow.
    """
    for note in config.notes:
        log.warning("%s", note)
    missing, problems = registry.missing(config.tables)
    for problem in problems:
        log.error("%s does not match: %s", config.file, problem)
    if missing:
        created = await registry.create_tables(missing, on_progress)
        log.info("created the tables of %s: %s", config.file, ", ".join(map(repr, created)))
