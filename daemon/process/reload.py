"""Reload: reads the configuration again while tables are in use, and applies what can change then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from shmreplay.daemon.arenas.registry import Registry
from shmreplay.daemon.checkpoints.checkpoints import Checkpoints
from shmreplay.daemon.config.configuration import ConfigError, DaemonConfig
from shmreplay.daemon.config.logs import make_handler, use_handler
from shmreplay.daemon.config.settings import BY_KEY
from shmreplay.daemon.control.shared_state import SharedState
from shmreplay.daemon.loop.workers import Workers
from shmreplay.daemon.process.declared_tables import create_declared
from shmreplay.errors import ShmReplayError

log = logging.getLogger("shmreplayd")


class Reload:
    """The configuration in effect, `config`, and how to change it to the current file."""

    def __init__(
        self, config: DaemonConfig, read: Callable[[], DaemonConfig], registry: Registry, checkpoints: Checkpoints,
        shared: SharedState, workers: Workers,
    ) -> None:  # fmt: skip
        self.config = config
        self._read = read
        self._registry = registry
        self._checkpoints = checkpoints
        self._shared = shared
        self._workers = workers

    async def run(self) -> None:
        """Reads all sources again. If there is a mistake, logs it and changes nothing.

        Logs changed settings that need a restart, and keeps their values. Creates newly declared tables; drops and
        changes none.
        """
        try:
            new = await self._workers.run(self._read)
            handler = make_handler(new.log_format, self.config.instance)
        except ConfigError as error:
            for problem in error.problems:
                log.error("%s", problem)
            log.error("the configuration was not reloaded: nothing has changed")
            return
        except ShmReplayError as error:
            log.error("the configuration was not reloaded: %s", error)
            return
        log.info("the configuration is reloaded from %s", new.file)  # logged before the log itself changes
        use_handler(new.log_level, handler)
        self._apply(new)
        try:
            await create_declared(self.config, self._registry, lambda describe: None)
        except (ShmReplayError, ValueError, OSError) as error:
            log.error("the tables of %s could not be created: %s", new.file, error)

    def _apply(self, new: DaemonConfig) -> None:
        old, settings = self.config, dict(self.config.settings)
        for key, given in new.settings.items():
            if BY_KEY[key].reloads:
                settings[key] = given
            elif given.value != settings[key].value:
                log.warning("%s is still %s; it becomes %s after a restart of the daemon", key, settings[key], given)
        saving = replace(new.checkpoints, directory=old.checkpoints.directory)
        self.config = replace(
            old,
            keep_tables=new.keep_tables,
            log_level=new.log_level,
            log_format=new.log_format,
            max_clients=new.max_clients,
            limits=new.limits,
            checkpoints=saving,
            tables=new.tables,
            notes=new.notes,
            settings=settings,
        )
        self._shared.max_clients = new.max_clients
        self._registry.limits = new.limits
        self._checkpoints.change(saving)
